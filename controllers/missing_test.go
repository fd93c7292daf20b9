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
		slow, leadership := &slowReader{Reader: cached, delay: time.Minute}, NewLeadership()
		leadership.Set(true)
		r := &Reconciler{
			cached: cached, writer: cached, live: slow, spread: newSpreader(), options: Options{Leadership: leadership},
		}
		r.agents = agents.New(agents.Options{Credentials: slow})
		s, err := r.gather(t.Context(), group, r.states.get(client.ObjectKeyFromObject(group), group.UID))
		must.Succeed(t, err)
		_, err = r.decide(t.Context(), s)
		must.Succeed(t, err)
		expect.Equalf(t, time.Since(s.state.memory.MissingSince["a"]), 0, "time since a is missing")
	})
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

func TestShortLossOfLeadershipIsNoticed(t *testing.T) {
	l := NewLeadership()
	l.Set(false)
	l.Set(true)
	expect.Equalf(t, l.lost.Load(), false, "lost by a standby that became the leader")
	l.Set(false)
	l.Set(true)
	expect.Equalf(t, l.lost.Load(), true, "lost by a leader that leads again")
}
