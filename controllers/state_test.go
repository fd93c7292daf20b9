package controllers

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// Agents that have a revision of an operator whose clock was ahead accept only newer
// documents of the next group of the same name.
func TestRevisionIsRetainedAfterItsGroupIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states groupStates
		ledger := types.NamespacedName{Namespace: "bank", Name: "ledger"}
		ahead := time.Now().Add(20 * time.Second).UnixMilli()
		s := &snapshot{now: time.Now(), state: states.get(ledger, "first"), group: &v1.ElectionGroup{}}
		s.group.Status.Protocol.Document = &v1.PublishedDocument{Revision: ahead}
		s.published()
		expect.Equalf(t, states.get(ledger, "second").revision, ahead, "group was replaced: revision")
		states.forget(ledger)
		states.forget(ledger) // Each agent that leaves triggers another reconcile.
		expect.Equalf(t, states.get(ledger, "third").revision, ahead, "group was deleted: revision")
		states.forget(ledger)
		time.Sleep(21 * time.Second)
		states.forget(types.NamespacedName{Namespace: "bank", Name: "audit"})
		if len(states.groups) > 0 || len(states.deleted) > 0 {
			t.Errorf("got %v and %v, want only revisions that are ahead of the clock", states.groups, states.deleted)
		}
	})
}

// A published revision is higher than what agents have, so that they accept it, and not ahead of the clocks of others,
// which would refuse it. An agent that reports ever higher revisions doesn't matter once a majority uses the published
// document.
func TestReportedRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		next, last := now.UnixMilli()+1, control.MaxRevision(now.Add(-time.Hour))
		for name, c := range map[string]struct {
			published int64
			reported  [3]int64
			want      int64
		}{
			"the status lost the document":       {0, [3]int64{next, 5, 0}, next},
			"the highest that others accept":     {0, [3]int64{last, 5, 0}, last},
			"ahead of the clocks of others":      {0, [3]int64{last + 1, 5, 0}, 5},
			"the end of time":                    {0, [3]int64{1<<63 - 1, 5, 0}, 5},
			"a majority uses the document":       {7, [3]int64{next, 7, 6}, 7},
			"a majority has later documents":     {7, [3]int64{8, 9, 6}, 9},
			"a published revision of the future": {control.MaxRevision(now) + 1, [3]int64{0, 0, 0}, 0},
		} {
			s := &snapshot{now: now, state: &groupState{}, group: &v1.ElectionGroup{}, reports: map[string]agents.AgentReport{}}
			s.group.UID, s.group.Status.Protocol.MemberList = "u", &v1.MemberList{}
			if c.published != 0 {
				s.group.Status.Protocol.Document = &v1.PublishedDocument{Revision: c.published}
			}
			for i, revision := range c.reported {
				pod := fmt.Sprint("ledger-", i)
				s.group.Status.Protocol.MemberList.Members = append(s.group.Status.Protocol.MemberList.Members, v1.Member{Pod: pod})
				s.reports[pod] = agents.AgentReport{Report: &control.Report{UID: "u", Revision: revision}}
			}
			if _, got := s.published(); got != c.want {
				t.Errorf("%s: got revision %d, want %d", name, got, c.want)
			}
		}
	})
}

// A pod that leads two groups loses both at once, as when its node is evacuated. The reconciles of both groups read the
// pod before either writes. The next reconcile corrects the annotation.
func TestDeletionCostAfterConcurrentChanges(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "a", UID: "u", Labels: map[string]string{
		"pod-template-hash": "x", v1.RoleLabel("ledger"): v1.RoleCoordinator, v1.RoleLabel("audit"): v1.RoleCoordinator,
	}, Annotations: map[string]string{corev1.PodDeletionCost: v1.CoordinatorDeletionCost}}}
	var both sync.WaitGroup
	both.Add(2)
	api := fake.NewClientBuilder().WithScheme(testclient.Scheme()).WithObjects(pod).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption,
		) error {
			both.Done()
			both.Wait()
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	r := &Reconciler{writer: api}
	var done sync.WaitGroup
	for _, group := range []string{"ledger", "audit"} {
		done.Go(func() {
			expect.Succeed(t, r.applyRole(t.Context(), group, pod, v1.RoleFollower))
		})
	}
	done.Wait()
	both.Add(1) // The events of the pod trigger more reconciles.
	now := &corev1.Pod{}
	read := func() {
		must.Succeed(t, api.Get(t.Context(), client.ObjectKeyFromObject(pod), now))
	}
	read()
	expect.Succeed(t, r.applyRole(t.Context(), "ledger", now, v1.RoleFollower))
	read()
	if cost, ok := now.Annotations[corev1.PodDeletionCost]; ok {
		t.Errorf("got labels %v and cost %s, want none: the pod leads no group", now.Labels, cost)
	}
}

// stored returns what the cache retains of an object.
func stored(t *testing.T, object client.Object) any {
	t.Helper()
	for kind, options := range cache.Options().ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) {
			stripped, err := options.Transform(object)
			must.Succeed(t, err)
			return stripped
		}
	}
	t.Fatalf("got no kind %T in the cache", object)
	return nil
}

// The objects that the operator writes compare as equal in the cache, also the largest ones.
func TestWrittenObjectsAreComparedAsWhole(t *testing.T) {
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: strings.Repeat("s", 63), Name: strings.Repeat("g", 63), UID: "0b5c8f3e-0000-0000-0000-000000000000",
	}}
	group.Spec.Service = &v1.CoordinatorService{Name: strings.Repeat("s", 63)}
	for i := range 32 { // as many as the schema permits
		group.Spec.Service.Ports = append(group.Spec.Service.Ports, v1.ServicePort{
			Name: strings.Repeat("p", 60) + fmt.Sprintf("%03d", i), Port: int32(i + 1), AppProtocol: strings.Repeat("a", 316),
		})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: strings.Repeat("p", 253), UID: group.UID},
	}
	pod.Spec.NodeName, pod.Status.PodIP = strings.Repeat("n", 253), "2001:0db8:85a3:0000:1111:8a2e:0370:7334"
	want := membership.EndpointSlice(group, nil, pod)
	have, _ := stored(t, want).(*discoveryv1.EndpointSlice)
	if !sameMetadata(have, want) || !reflect.DeepEqual(have.Endpoints, want.Endpoints) ||
		!reflect.DeepEqual(have.Ports, want.Ports) {
		t.Errorf("got %d ports and endpoints %+v, want those that were written", len(have.Ports), have.Endpoints)
	}
	service := membership.MakePlan(membership.Facts{Group: group}).Service
	if have, _ := stored(t, service).(*corev1.Service); !sameService(have, service) {
		t.Errorf("got Service %+v, want that which was written", have)
	}
}

// newMajoritySnapshot returns a snapshot of a group of three when the operator has just started.
func newMajoritySnapshot() *snapshot {
	s := &snapshot{
		now: time.Now(), state: &groupState{}, connections: map[string]agents.Connection{},
		group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}},
	}
	s.key.Namespace, s.key.Name = "bank", "ledger"
	s.group.Status.Protocol.MemberList = &v1.MemberList{
		Version: 1, State: v1.ListSettled,
		Members: []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}, {Pod: "c", Priority: 3}},
	}
	return s
}

// membership.Facts.MajorityLost: an operator that has just started isn't connected to any agent. That must not look as
// if the members had stopped. Each time that a majority is connected, the wait begins again.
func TestMajorityIsLostAfterGrace(t *testing.T) {
	s := newMajoritySnapshot()
	connect := func(pods ...string) {
		clear(s.connections)
		for _, pod := range pods {
			s.connections[pod] = agents.Connection{Connected: true, Groups: []string{"ledger"}}
		}
	}
	for _, step := range []struct {
		name    string
		connect []string
		after   time.Duration
		lost    bool
	}{
		{"at the start", nil, 0, false},
		{"a minority is connected", []string{"a"}, membership.MajorityGrace - 1, false},
		{"after the grace", []string{"a"}, 1, true},
		{"a majority is connected", []string{"a", "b"}, 1, false},
		{"for a long time", []string{"b", "c"}, time.Hour, false},
		{"a short interruption", nil, time.Hour, false},
		{"another majority", []string{"a", "c"}, membership.MajorityGrace - 1, false},
		{"another interruption", []string{"c"}, 1, false},
		{"nearly the grace", []string{"c"}, membership.MajorityGrace - 1, false},
		{"the grace", []string{"b"}, 1, true},
	} {
		s.now, s.deadline = s.now.Add(step.after), deadline{}
		connect(step.connect...)
		expect.Equalf(t, s.membershipFacts().MajorityLost, step.lost, "%s", step.name)
		if waits := len(step.connect) < 2 && !step.lost; s.deadline.at.IsZero() == waits {
			t.Errorf("%s: got deadline %v, want one exactly while the grace lasts", step.name, s.deadline.at)
		}
	}
	s.connections["a"] = agents.Connection{Connected: true, Groups: []string{"other"}}
	s.connections["b"] = agents.Connection{Connected: true, Groups: []string{"ledger"}}
	expect.Equalf(t, s.majorityLost(), true, "lost the majority of agents that accept the group")
}

// membership.Facts.Term has the terms of known lists, and of others those that leave no majority for the present one.
func TestTermOfReports(t *testing.T) {
	const last, other = control.MaxTerm, 9 << 16
	for name, c := range map[string]struct {
		terms map[string]uint64
		want  int64
	}{
		"of the list":             {map[string]uint64{"a": 1<<17 - 1, "b": 5}, 1<<17 - 1},
		"of another list":         {map[string]uint64{"a": 1 << 17, "b": 5, "c": 5}, 5},
		"without a majority left": {map[string]uint64{"a": 1 << 17, "b": 5}, 1 << 17},
		"a majority's":            {map[string]uint64{"a": other, "b": last, "c": 5}, other},
		"out of range":            {map[string]uint64{"a": 1<<64 - 1, "b": 5, "c": 6}, 6},
		"of others":               {map[string]uint64{"a": other, "x": other, "b": 5, "c": 5}, 5},
		"of an earlier group too": {map[string]uint64{"a": 5, "earlier": other, "b": 5}, 5},
	} {
		s := newMajoritySnapshot()
		s.reports = map[string]agents.AgentReport{}
		for pod, term := range c.terms {
			report := &control.Report{UsedTerm: term}
			if pod == "earlier" {
				pod, report.UID = "c", "earlier"
			}
			s.reports[pod] = agents.AgentReport{Report: report}
		}
		expect.Equalf(t, s.membershipFacts().Term, c.want, "terms %s", name)
	}
}

// What only agents cause waits for the group's turn to write. Neither an edit does, nor that a list settles.
func TestListsFromAgents(t *testing.T) {
	list := func(change func(*v1.MemberList)) *v1.MemberList {
		l := newMajoritySnapshot().group.Status.Protocol.MemberList
		change(l)
		return l
	}
	was := list(func(*v1.MemberList) {})
	for name, c := range map[string]struct {
		change func(*v1.MemberList)
		want   bool
	}{
		"only the document changes": {func(*v1.MemberList) {}, true},
		"an identity":               {func(l *v1.MemberList) { l.Identities = map[string]v1.Identity{"a": "1"} }, true},
		"another identity, or term": {func(l *v1.MemberList) { l.Version, l.State = 2, v1.ListAdopting }, true},
		"other members":             {func(l *v1.MemberList) { l.Version, l.Members = 2, l.Members[1:] }, false},
		"another lease":             {func(l *v1.MemberList) { l.Version, l.LeaseMillis = 2, 7 }, false},
		"a member departs":          {func(l *v1.MemberList) { l.Departed = []string{"a"} }, false},
		"the list settles":          {func(l *v1.MemberList) { l.State = v1.ListAdopting }, false},
	} {
		expect.Equalf(t, isFromAgents(was, list(c.change)), c.want, "%s", name)
	}
	expect.Equalf(t, isFromAgents(nil, was), false, "the first list is from agents")
}

// A standby reconciles rarely. So it doesn't count the time between two reconciles, in which
// a majority may have been connected.
func TestStandbyDoesNotCountTimeWithoutMajority(t *testing.T) {
	s := newMajoritySnapshot()
	r := &Reconciler{}
	for range 2 {
		must.Succeed(t, r.reconcileStandby(t.Context(), s))
		s.now = s.now.Add(time.Hour)
	}
	expect.Equalf(t, s.majorityLost(), false, "lost the majority in the first reconcile as the leader")
}
