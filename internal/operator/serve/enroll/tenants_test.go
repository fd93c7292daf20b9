package enroll_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
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
	if waiting := slow.waiting.Load(); waiting != most {
		t.Errorf("got %d enrollments of a namespace at once, want %d", waiting, most)
	}
	close(slow.released)
	all.Wait()
}

// A pod can be in a hundred groups, whose ConfigMaps have a megabyte each. The response has the
// documents for which there is room.
func TestDocumentsInAResponseAreBounded(t *testing.T) {
	e := newEnv(t)
	token := e.token(e.createPod("ledger-0"), v1.TokenAudience)
	publish := func(name string, members int) {
		group := &v1.ElectionGroup{Spec: v1.ElectionGroupSpec{Members: []v1.Member{{Pod: "ledger-0", Priority: 1}}}}
		group.Namespace, group.Name = e.namespace, name
		e.create(group)
		group.Status.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: group.Spec.Members}
		if err := e.Status().Update(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("uid: %q\ngroup:\n  name: %q\n  members:\n", group.UID, name) + strings.Repeat("  - {\"name\":\"ledger-0\"}\n", members)
		published := &corev1.ConfigMap{Data: map[string]string{control.DocumentKey: text}}
		published.Namespace, published.Name = e.namespace, control.ConfigMapName(name)
		e.create(published)
	}
	publish("ledger", 990)
	documents := func() []string {
		t.Helper()
		status, response, message := e.post(token)
		if status != http.StatusOK {
			t.Fatalf("got %d %q, want 200", status, message)
		}
		return response.Documents
	}
	if got := documents(); len(got) != 1 {
		t.Errorf("got %d documents, want that of ledger", len(got))
	}
	for i, name := range []string{"audit", "mail", "web"} {
		publish(name, 990)
		pod := e.createPod(fmt.Sprint("all-", i), func(pod *corev1.Pod) { pod.Annotations[v1.AnnotationGroups] = "ledger,audit,mail,web" })
		token = e.token(pod, v1.TokenAudience)
	}
	if got := documents(); len(got) != 2 || len(got[0])+len(got[1]) > 64<<10 {
		t.Errorf("got %d documents, want the two for which there is room", len(got))
	}
}
