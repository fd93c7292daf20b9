package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
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
	limits, ofNamespace := newGroupLimits(), (&namespaceLimits{}).of("bank", noon)
	for i := range 10 { // Five failovers: the loss of a coordinator, and the next one.
		if !limits.elections.write(noon.Add(time.Duration(i)*time.Millisecond), ofNamespace.elections) {
			t.Fatalf("write %d has to wait, want none of 10", i+1)
		}
	}
	expect.AtMostf(t, limits.elections.next(noon.Add(10*time.Millisecond), ofNamespace.elections).Sub(noon), time.Second,
		"time until the next turn")
	expect.Equalf(t, limits.changes.write(noon, ofNamespace.changes), true,
		"a change of a row is independent of elections")
	for range 2 {
		expect.Equalf(t, limits.elections.write(noon.Add(time.Minute), ofNamespace.elections), true,
			"a failover after a minute needn't wait")
	}
}

// Hundreds of groups of a namespace elect all the time. Their writes are limited together, each
// group gets its share, and another namespace isn't concerned.
func TestGroupsOfANamespaceAreLimitedTogether(t *testing.T) {
	const groups, seconds = 200, 120
	var all namespaceLimits
	var limits []groupLimits
	for range groups {
		limits = append(limits, newGroupLimits())
	}
	count := make([]int, groups)
	total := 0
	for now := noon; now.Before(noon.Add(seconds * time.Second)); now = now.Add(20 * time.Millisecond) {
		ofNamespace := all.of("greedy", now)
		for i := range limits {
			if limits[i].elections.write(now, ofNamespace.elections) {
				count[i]++
				total++
			}
		}
	}
	expect.AtMostf(t, total, namespaceBurst+namespaceRate*seconds+1, "writes in %d s", seconds)
	expect.AtLeastf(t, total, namespaceRate*seconds, "writes in %d s", seconds)
	if least, most := slices.Min(count), slices.Max(count); most-least > electionBurst+1 {
		t.Errorf("got between %d and %d writes of each group, want about the same number", least, most)
	}
	other, later := newGroupLimits(), noon.Add(seconds*time.Second)
	expect.Equalf(t, other.elections.write(later, all.of("bank", later).elections), true,
		"an election in another namespace needn't wait")
}

// The operator forgets the limits of namespaces that aren't used.
func TestLimitsOfQuietNamespacesAreForgotten(t *testing.T) {
	var limits namespaceLimits
	for i := range 1000 {
		now := noon.Add(time.Duration(i) * time.Second)
		limits.of(fmt.Sprint("bank-", i), now).elections.AllowN(now, namespaceBurst)
	}
	expect.AtMostf(t, len(limits.byName), 60, "limits of namespaces, of which those of the last 50 s aren't full")
}

// newLimitedGroup returns what recordEvents needs.
func newLimitedGroup(events *fakeEventClient) (*Reconciler, *snapshot) {
	r := &Reconciler{writer: events, metrics: newMetricSet(nil)}
	s := &snapshot{
		state: &groupState{limits: newGroupLimits(), eventsRecovered: true},
	}
	s.Group, s.Now = &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}, time.Now()
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

// A standby has no metrics of groups: an alert would fire because of a group without a coordinator.
func TestStandbyCountsNothingOfGroups(t *testing.T) {
	r, s := newLimitedGroup(&fakeEventClient{})
	s.LeaderGrace = time.Second
	for i := range 2 * eventBurst {
		must.Succeed(t,
			r.recordEvents(t.Context(), s, []groupstatus.Event{{Key: fmt.Sprint(i)}}))
	}
	r.metrics.connected = func() map[string]int { return nil }
	registry := prometheus.NewPedanticRegistry()
	must.Succeed(t, r.metrics.register(registry))
	families, err := registry.Gather()
	must.Succeed(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if strings.Contains(metric.String(), "ledger") {
				t.Errorf("got %s of a group, want none", family.GetName())
			}
		}
	}
}
