package enroll_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// slowNamespace is an API server that accepts the token "greedy" as that of a pod in the
// namespace greedy, and doesn't return that pod until it is released.
type slowNamespace struct {
	client.Client
	waiting  *atomic.Int32
	released chan struct{}
}

func (s slowNamespace) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	review, ok := object.(*authenticationv1.TokenReview)
	if !ok || review.Spec.Token != "greedy" {
		return s.Client.Create(ctx, object, opts...)
	}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{v1.TokenAudience}, User: authenticationv1.UserInfo{
		Username: "system:serviceaccount:greedy:default",
		Extra: map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/pod-name": {"greedy-0"}, "authentication.kubernetes.io/pod-uid": {"u"},
		},
	}}
	return nil
}

func (s slowNamespace) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if key.Namespace != "greedy" {
		return s.Client.Get(ctx, key, object, opts...)
	}
	s.waiting.Add(1)
	<-s.released
	return errors.New("not now")
}

// The pods of a namespace enroll all at once, and each takes long. Those of another one don't
// wait for them.
func TestNamespaceDoesNotDelayEnrollmentsOfOthers(t *testing.T) {
	const requests, most = 64, 8
	var slow slowNamespace
	e := newEnv(t, func(c client.Client) client.Client {
		slow = slowNamespace{Client: c, waiting: &atomic.Int32{}, released: make(chan struct{})}
		return slow
	})
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if status, _, message := e.post("greedy"); status != http.StatusServiceUnavailable {
				t.Errorf("got %d %q, want 503", status, message)
			}
		})
	}
	testwait.Until(t, "the greedy namespace has its share", func() bool { return slow.waiting.Load() >= most })
	if status, _, message := e.post(e.token(e.createPod("ledger-0"), v1.TokenAudience)); status != http.StatusOK {
		t.Errorf("got %d %q for a pod of another namespace, want 200", status, message)
	}
	expect.Equalf(t, slow.waiting.Load(), most, "enrollments of a namespace at once")
	close(slow.released)
	all.Wait()
}
