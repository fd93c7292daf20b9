package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// write takes a turn if that has come.
func (t *turns) write(now time.Time, ofNamespace *rate.Limiter) bool {
	if now.Before(t.next(now, ofNamespace)) {
		return false
	}
	t.take()
	return true
}

func TestFailoversInARowDoNotWait(t *testing.T) {
	limits, ofNamespace := newGroupLimits(), (&namespaceLimits{}).of("bank", noon, true)
	for i := range 10 { // Five failovers: the loss of a coordinator, and the next one.
		if !limits.elections.write(noon.Add(time.Duration(i)*time.Millisecond), ofNamespace) {
			t.Fatalf("write %d has to wait, want none of 10", i+1)
		}
	}
	expect.AtMostf(t, limits.elections.next(noon.Add(10*time.Millisecond), ofNamespace).Sub(noon), time.Second,
		"time until the next turn")
	expect.Equalf(t, limits.changes.write(noon, ofNamespace), true,
		"a change of a row is independent of elections")
	for range 2 {
		expect.Equalf(t, limits.elections.write(noon.Add(time.Minute), ofNamespace), true,
			"a failover after a minute needn't wait")
	}
}

// Hundreds of groups of a namespace elect all the time. Their writes are limited together, each
// group gets its share, and another namespace isn't concerned.
func TestGroupsOfANamespaceAreLimitedTogether(t *testing.T) {
	const groups, seconds, writesOfElection = 200, 240, 5
	var all namespaceLimits
	var limits []groupLimits
	for range groups {
		limits = append(limits, newGroupLimits())
	}
	count := make([]int, groups)
	total := map[bool]int{}
	for now := noon; now.Before(noon.Add(seconds * time.Second)); now = now.Add(20 * time.Millisecond) {
		ofNamespace := all.of("greedy", now, true)
		for i := range limits {
			if limits[i].elections.write(now, ofNamespace) {
				ofNamespace.ReserveN(now, writesOfElection-1)
				count[i]++
				total[now.Sub(noon) >= seconds/2*time.Second] += writesOfElection
			}
		}
	}
	const most = namespaceRate * seconds / 2
	expect.AtMostf(t, total[true], most, "writes in the last %d s", seconds/2)
	expect.AtLeastf(t, total[true], most/2, "writes in the last %d s", seconds/2)
	expect.AtMostf(t, total[false], most+namespaceBurst+int(namespaceDebt.Seconds()*namespaceRate),
		"writes in the first %d s", seconds/2)
	if least, most := slices.Min(count), slices.Max(count); most-least > electionBurst+1 {
		t.Errorf("got between %d and %d writes of each group, want about the same number", least, most)
	}
	other, later := newGroupLimits(), noon.Add(seconds*time.Second)
	expect.Equalf(t, other.elections.write(later, all.of("bank", later, true)), true,
		"an election in another namespace needn't wait")
}

// A hundred groups elect once a minute, all at once, beside one that elects all the time: none of them waits.
func TestHonestGroupsDoNotWait(t *testing.T) {
	const groups, writesOfElection = 100, 5
	ofNamespace, hostile := (&namespaceLimits{}).of("bank", noon, true), newGroupLimits()
	var limits []groupLimits
	for range groups {
		limits = append(limits, newGroupLimits())
	}
	for now := noon; now.Before(noon.Add(10 * time.Minute)); now = now.Add(20 * time.Millisecond) {
		if hostile.elections.write(now, ofNamespace) {
			ofNamespace.ReserveN(now, writesOfElection-1)
		}
		if now.Sub(noon)%time.Minute != 0 {
			continue
		}
		for i := range limits {
			for _, change := range []string{"loss", "election"} {
				if !limits[i].elections.write(now, ofNamespace) {
					t.Fatalf("group %d, %s after %s: got a wait, want none", i, change, now.Sub(noon))
				}
				ofNamespace.ReserveN(now, writesOfElection-1)
			}
		}
	}
}

// The operator forgets the limits of namespaces that aren't used.
func TestLimitsOfQuietNamespacesAreForgotten(t *testing.T) {
	var limits namespaceLimits
	for i := range 1000 {
		now := noon.Add(time.Duration(i) * time.Second)
		limits.of(fmt.Sprint("bank-", i), now, true).AllowN(now, namespaceBurst/2)
	}
	expect.AtMostf(t, len(limits.byName), 5, "limits of namespaces, of which those of the last 3 s aren't full")
}

// newLimitedGroup returns what recordEvents needs.
func newLimitedGroup(events *fakeEventClient) (*Reconciler, *snapshot) {
	r := &Reconciler{writer: events, metrics: newMetricSet(nil), options: Options{Leadership: NewLeadership()}}
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	s := &snapshot{state: &groupState{limits: newGroupLimits()}, Facts: facts.New(group)}
	s.Now = time.Now()
	return r, s
}

// A group that elects all the time has a bounded number of Events, and one of the newest change.
func TestEventsAreLimited(t *testing.T) {
	const elections = 100
	events := &fakeEventClient{}
	r, s := newLimitedGroup(events)
	for i := range elections {
		event := groupstatus.Event{Note: fmt.Sprint("election ", i), Key: fmt.Sprint(i)}
		must.Succeed(t, r.recordEvents(t.Context(), s, []groupstatus.Event{event}))
	}
	if len(events.notes) < eventBurst || len(events.notes) > eventBurst+int(time.Since(s.Now).Minutes()) {
		t.Fatalf("got %d events at once, want %d", len(events.notes), eventBurst)
	}
	if wait := s.wakeAt.Sub(s.Now); wait <= 0 || wait > 2*time.Minute {
		t.Errorf("got the next reconcile after %s, want it when the next event may be written", wait)
	}
	s.state.limits.events.reserved = time.Now() // A minute has passed.
	must.Succeed(t, r.recordEvents(t.Context(), s, nil))
	left := elections - eventBurst - 1
	if want := fmt.Sprintf("election 99 (after %d events that were left out)",
		left); events.notes[len(events.notes)-1] != want {
		t.Errorf("got last note %q, want %q", events.notes[len(events.notes)-1], want)
	}
	expect.Equalf(t, r.metrics.groups[s.key()].droppedEvents, uint64(left), "dropped events in the metric")
}

// The operator drops an event that is rejected: later events don't wait for it. It repeats one that it couldn't write.
func TestRejectedEventIsDropped(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "e", errors.New("policy"))
	events := &fakeEventClient{err: refused}
	r, s := newLimitedGroup(events)
	must.Succeed(t, r.recordEvents(t.Context(), s, []groupstatus.Event{{Note: "first"}}))
	events.err = errors.New("connection refused")
	if err := r.recordEvents(t.Context(), s, []groupstatus.Event{{Note: "second"}}); err == nil {
		t.Error("got no error for an event that wasn't written")
	}
	events.err = nil
	must.Succeed(t, r.recordEvents(t.Context(), s, nil))
	expect.EqualSlicesf(t, events.notes, []string{"first", "second", "second"}, "events")
}

// A group that elects without end has no turn for each election. The next reconcile is due when it has one, and writes
// the newest election. What a user causes doesn't wait.
func TestElectionsWithoutEndAreLimited(t *testing.T) {
	r, s := newLimitedGroup(nil)
	for i := range electionBurst {
		expect.Equalf(t, r.mustWait(s, decide.LimitElections), false, "election %d waits", i)
	}
	expect.Equalf(t, r.mustWait(s, decide.LimitElections), true, "one more election waits")
	expect.AtMostf(t, time.Until(s.wakeAt), time.Second/groupRate, "time until the next reconcile")
	expect.Equalf(t, r.mustWait(s, decide.LimitChanges) || r.mustWait(s, decide.NoLimit), false, "another change waits")
}

// Groups beyond the maximum of a namespace wait. Those without members don't count.
func TestGroupsOfANamespaceAreCounted(t *testing.T) {
	group := func(namespace, name string, members *v1.MemberList) *v1.ElectionGroup {
		g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		g.Status.Protocol.MemberList = members
		return g
	}
	list := &v1.MemberList{Version: 1}
	cached := fake.NewClientBuilder().WithScheme(testclient.Scheme()).WithObjects(group("bank", "ledger", list),
		group("bank", "audit", list), group("bank", "next", nil), group("shop", "cart", list)).Build()
	for most, want := range map[int]bool{0: false, 2: true, 3: false} {
		r := &Reconciler{cached: cached, options: Options{MaxGroups: most}}
		s := &snapshot{Facts: facts.New(group("bank", "next", nil))}
		must.Succeed(t, r.countGroups(t.Context(), s))
		expect.Equalf(t, s.GroupsMax > 0, want, "the third group waits if the maximum is %d", most)
		expect.Equalf(t, s.wakeAt.IsZero(), !want, "it isn't checked again if the maximum is %d", most)
		s.Group, s.GroupsMax = group("bank", "ledger", list), 0
		must.Succeed(t, r.countGroups(t.Context(), s))
		expect.Equalf(t, s.GroupsMax, 0, "a group with members waits if the maximum is %d", most)
	}
}

// The series of a group disappear with it, so that no alert fires for a group that is gone.
func TestMetricsOfGroup(t *testing.T) {
	m, registry := newMetricSet(func() map[string]int { return map[string]int{"v1": 2, "v2": 1} }),
		prometheus.NewPedanticRegistry()
	must.Succeed(t, m.register(registry))
	group := types.NamespacedName{Namespace: "bank", Name: "ledger"}
	m.update(group, func(g *groupMetrics) {
		g.Gauges = decide.Gauges{
			Vacant: true, Disagreeing: true, Divided: true, Behind: true, Refused: true, Connected: 2, Expected: 3,
		}
		g.elections, g.deferred, g.droppedEvents = 8, 9, 10
	})
	r, s := &Reconciler{metrics: m}, &snapshot{Facts: facts.New(&v1.ElectionGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: group.Name},
	})}
	for _, failover := range []decide.Measures{
		{End: decide.EndFailure, Failover: new(2 * time.Second)},
		{End: decide.EndFailure, Failover: new(3 * time.Second)},
		{End: decide.EndPlanned, Failover: new(time.Second)},
		{End: decide.EndUnknown, Failover: new(6 * time.Second)},
		{End: decide.EndUnknown, Failover: new(time.Second)},
	} {
		r.measure(s, &decide.Actions{Measures: failover})
	}
	expectMetrics := func(what, want string) {
		t.Helper()
		families, err := registry.Gather()
		must.Succeed(t, err)
		var got []string
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				got = append(got, strings.TrimPrefix(family.GetName(), "conclave_operator_")+
					fmt.Sprint(metric.GetGauge().GetValue()+metric.GetCounter().GetValue()))
			}
		}
		expect.Equalf(t, strings.Join(got, " "), want, "%s", what)
	}
	expectMetrics("with a group", "agents2 agents1 agents_connected2 agents_expected3 elections_total8 "+
		"events_dropped_total10 failover_seconds0 failover_seconds0 failover_seconds0 group_agreed0 group_coordinator0 "+
		"group_coordinators_differ1 group_gap_seconds_total5 group_gap_seconds_total8 group_gaps_total2 group_gaps_total3 "+
		"group_status_behind1 groups1 groups_refused1 reconciles_total0 status_deferred_total9 status_lag_seconds0 "+
		"streams_connected3")
	m.forget(group)
	expectMetrics("without it", "agents2 agents1 failover_seconds0 failover_seconds0 failover_seconds0 groups0 "+
		"groups_refused0 reconciles_total0 status_lag_seconds0 streams_connected3")
}

// A standby has no metrics of groups: an alert would fire because of a group without a coordinator.
func TestStandbyCountsNothingOfGroups(t *testing.T) {
	r, s := newLimitedGroup(&fakeEventClient{})
	s.LeaderGrace = time.Second
	for i := range 2 * eventBurst {
		must.Succeed(t,
			r.recordEvents(t.Context(), s, []groupstatus.Event{{Key: fmt.Sprint(i)}}))
	}
	expect.Equalf(t, len(r.metrics.groups), 0, "groups in the metrics")
}
