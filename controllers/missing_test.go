package controllers

import (
	"context"
	"crypto/tls"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// membership.Facts.Missing: the wait restarts with each version. A pod that has been missing for a long time may be
// created just before the version is published, begin with the previous one, and appear in the cache only later.
func TestMissingPodWaitRestartsWithEachVersion(t *testing.T) {
	now := time.Now()
	s := &snapshot{
		now: now, state: &groupState{missingSince: map[string]time.Time{}},
		group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}},
	}
	s.group.Status.Protocol.Document = &v1.PublishedDocument{Revision: 1}
	members := []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}, {Pod: "c", Priority: 3}}
	s.group.Status.Protocol.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: members}
	expect.Equalf(t, s.missing()["c"], false, "c is missing before the wait is over")
	s.now = now.Add(time.Hour)
	expect.Equalf(t, s.missing()["c"], true, "c is missing after an hour")
	s.group.Status.Protocol.MemberList = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: members[:2], Previous: &v1.PreviousList{Members: members},
	}
	expect.Equalf(t, s.missing()["c"], false, "c is missing before the wait is over")
	s.now = s.now.Add(time.Hour)
	expect.Equalf(t, s.missing()["c"], true, "c is missing after an hour")
}

// In Available mode there are no grants to wait for. A pod that is replaced under the
// same name remains a member all the same.
func TestReplacedPodRemainsMemberInAvailableMode(t *testing.T) {
	s := &snapshot{
		now: time.Now(), state: &groupState{}, group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}},
	}
	s.group.Spec.Safety.Mode = v1.Available
	s.group.Status.Protocol.MemberList = &v1.MemberList{
		Version: 1, State: v1.ListSettled, Members: []v1.Member{{Pod: "a", Priority: 1}},
	}
	s.group.Status.Protocol.Document = &v1.PublishedDocument{Revision: 1}
	expect.Equalf(t, s.missing()["a"], false, "a is missing before the wait for its replacement is over")
	expect.Equalf(t, s.deadline.at.IsZero(), false, "has no deadline, for a reconcile after the wait")
	s.now = s.deadline.at
	expect.Equalf(t, s.missing()["a"], true, "a is missing after the wait")
}

// slowReader is an API server that responds after a delay.
type slowReader struct {
	client.Reader
	delay time.Duration
}

func (s *slowReader) Client(...identity.Name) *tls.Config { return nil }

func (s *slowReader) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	options ...client.GetOption,
) error {
	time.Sleep(s.delay)
	return s.Reader.Get(ctx, key, object, options...)
}

// However long reads take, the wait for a member begins when the API server is known to have no pod, and no sooner.
func TestMissingPodWaitBeginsWhenPodIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger", UID: "6f0c"}}
		group.Status.Protocol.MemberList = &v1.MemberList{
			Version: 2, State: v1.ListAdopting, Members: []v1.Member{{Pod: "a", Priority: 2}},
			Previous: &v1.PreviousList{Members: []v1.Member{{Pod: "a", Priority: 1}}},
		}
		group.Status.Protocol.Document = &v1.PublishedDocument{Revision: 1}
		cached := fake.NewClientBuilder().WithScheme(testclient.Scheme()).WithIndex(&corev1.Pod{},
			cache.PodsByGroup, cache.GroupsInPod).Build()
		slow := &slowReader{Reader: cached, delay: time.Minute}
		r := &Reconciler{
			cached: cached, writer: cached, live: slow, spread: newSpreader(), explanations: newExplanationLimit(),
		}
		r.agents = agents.New(agents.Options{Credentials: slow})
		expectMissing := func(when string, want bool) {
			s, err := r.gather(t.Context(), group)
			must.Succeed(t, err)
			expect.Equalf(t, s.membershipFacts().Missing["a"], want, "%s: missing", when)
		}
		expectMissing("at once", false)
		slow.delay = 0
		time.Sleep(membership.AdoptionWait(group) - time.Nanosecond)
		expectMissing("before the wait is over", false)
		time.Sleep(time.Nanosecond)
		expectMissing("after the wait", true)
	})
}

// A pod that only explains the status may be gone: it doesn't count as present, however long the operator relies on its
// last read.
func TestExplainingPodIsMissing(t *testing.T) {
	s := &snapshot{
		now: time.Now(), state: &groupState{}, group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}},
	}
	s.pods, s.explaining = map[string]*corev1.Pod{"a": {}}, map[string]bool{"a": true}
	expect.Equalf(t, s.isMissing("a"), true, "a pod that explains the status is missing")
	s.explaining = nil
	expect.Equalf(t, s.isMissing("a"), false, "a pod of the cache is missing")
}

// Groups without pods cost at most a few reads per second in all, and ever fewer each.
func TestReadsOfExplainingPodsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := &countingReader{Reader: fake.NewClientBuilder().WithScheme(testclient.Scheme()).Build()}
		r := &Reconciler{live: live, explanations: newExplanationLimit()}
		groups := make([]*snapshot, 500)
		for i := range groups {
			groups[i] = &snapshot{state: &groupState{}, group: &v1.ElectionGroup{}}
			groups[i].group.Spec.Members = []v1.Member{{Pod: "a"}, {Pod: "b"}, {Pod: "c"}}
		}
		reconcile := func(until time.Duration, groups ...*snapshot) int {
			before, began := live.reads, time.Now()
			for time.Since(began) < until {
				for _, s := range groups {
					s.now, s.deadline = time.Now(), deadline{}
					r.addExplainingPods(t.Context(), s)
				}
				time.Sleep(time.Second)
			}
			return live.reads - before
		}
		if got, most := reconcile(time.Minute, groups...),
			explanationsBurst+60*explanationsPerSecond; got > most || got < most/2 {
			t.Errorf("500 groups: got %d reads in a minute, want at most %d, and not far fewer", got, most)
		}
		one := &snapshot{state: &groupState{}, group: groups[0].group}
		time.Sleep(time.Hour)
		if first, later := reconcile(time.Minute, one), reconcile(10*time.Hour, one); first > 20 || later > 100 {
			t.Errorf("one group: got %d reads in the first minute and %d in ten hours, want at most 20 and 100", first, later)
		}
	})
}

type countingReader struct {
	client.Reader
	reads int
}

func (c *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	options ...client.GetOption,
) error {
	c.reads++
	return c.Reader.Get(ctx, key, object, options...)
}

// startingReader is an API server that isn't ready at once.
type startingReader struct {
	client.Reader
	requests int
}

func (s *startingReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	if s.requests++; s.requests == 1 {
		return apierrors.NewTooManyRequests("starting", 1)
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil)
}

func TestFirstAnswerIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := services{live: &startingReader{}}
		if permitted, err := s.firstAnswer(t.Context()); permitted || err != nil {
			t.Errorf("got %t and %v, want the answer to the second request", permitted, err)
		}
	})
}
