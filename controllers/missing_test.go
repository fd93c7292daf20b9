package controllers

import (
	"context"
	"crypto/tls"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

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
		slow, elected := &slowReader{Reader: cached, delay: time.Minute}, make(chan struct{})
		close(elected)
		r := &Reconciler{
			cached: cached, writer: cached, live: slow, spread: newSpreader(), explanations: rate.NewLimiter(1, 1),
			elected: elected,
		}
		r.agents = agents.New(agents.Options{Credentials: slow})
		s, err := r.gather(t.Context(), group, r.states.get(client.ObjectKeyFromObject(group), group.UID))
		must.Succeed(t, err)
		_, err = r.decide(t.Context(), s)
		must.Succeed(t, err)
		expect.Equalf(t, time.Since(s.state.memory.MissingSince["a"]), 0, "time since a is missing")
	})
}

// Groups without pods cost at most a few reads per second in all, and ever fewer each.
func TestReadsOfExplainingPodsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := &countingReader{Reader: fake.NewClientBuilder().WithScheme(testclient.Scheme()).Build()}
		r := &Reconciler{live: live, explanations: rate.NewLimiter(explanationsPerSecond, explanationsBurst)}
		groups := make([]*snapshot, 500)
		for i := range groups {
			groups[i] = &snapshot{state: &groupState{}}
			groups[i].Group = &v1.ElectionGroup{}
			groups[i].Group.Spec.Members = []v1.Member{{Pod: "a"}, {Pod: "b"}, {Pod: "c"}}
		}
		reconcile := func(until time.Duration, groups ...*snapshot) int {
			before, began := live.reads, time.Now()
			for time.Since(began) < until {
				for _, s := range groups {
					s.Now = time.Now()
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
		one := &snapshot{state: &groupState{}}
		one.Group = groups[0].Group
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
