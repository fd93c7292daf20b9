package controllers_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// What agents mount can't be written, and stays so. They elect all the same, and
// all that follows from that is shown; nobody is told what isn't published.
func TestConfigMapCannotBeWritten(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	published := &corev1.ConfigMap{ObjectMeta: s.named(control.ConfigMapName("ledger"))}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(published), published); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(published.DeepCopy())
	published.Immutable = new(true)
	if err := s.client.Patch(t.Context(), published, patch); err != nil {
		t.Fatal(err)
	}
	before := s.document("ledger").Revision
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members = group.Spec.Members[1:] })
	ready := s.awaitCondition("ledger", v1.Ready, v1.ReasonWriteFailed)
	if want := "Agents keep their current settings because a write failed: write ConfigMap conclave-ledger: "; !strings.Contains(ready.Message, want) || !strings.Contains(ready.Message, "immutable") {
		t.Errorf("Ready should say %q, and why, not %q", want, ready.Message)
	}
	s.elect("ledger", "ledger-1", 8)
	s.awaitCoordinator("ledger", "ledger-1", 8)
	s.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	s.awaitRole("ledger-2", "ledger", v1.RoleFollower)
	s.await("the Service follows", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-1") })
	if report, _ := s.agents["ledger-1"].Report("ledger"); report.Revision != before {
		t.Errorf("an agent goes by revision %d, and what is published is %d", report.Revision, before)
	}
	if ready := s.awaitCondition("ledger", v1.Ready, v1.ReasonWriteFailed); !strings.Contains(ready.Message, "immutable") {
		t.Errorf("it still can't be written, and Ready says %q", ready.Message)
	}

	if err := s.client.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	s.awaitList("ledger", 2, "ledger-1", "ledger-2")
	s.awaitCondition("ledger", v1.Ready, v1.ReasonNoFailover)
	s.await("who is no member has left", func() bool { return !s.in("ledger-0", "ledger") })
}

// What leads traffic can't be written, and later it can.
func TestTrafficCannotBeWritten(t *testing.T) {
	for what, path := range map[string]string{"apply EndpointSlice ledger-leader-conclave": "/endpointslices/", "label pod ledger-": "/pods/"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			var refused atomic.Bool
			a := s.operator(func(a *actor) {
				a.refuses = func(r *http.Request) bool { return refused.Load() && strings.Contains(r.URL.Path, path) }
			})
			s.settled(a)
			refused.Store(true)
			s.elect("ledger", "ledger-1", 8)
			ready := s.awaitCondition("ledger", v1.Ready, v1.ReasonWriteFailed)
			if want := "Traffic may go to the wrong pod because a write failed: " + what; !strings.HasPrefix(ready.Message, want) {
				t.Errorf("Ready says %q, and should say %q", ready.Message, want)
			}
			s.awaitCoordinator("ledger", "ledger-1", 8)
			refused.Store(false)
			s.awaitCondition("ledger", v1.Ready, v1.ReasonHealthy)
			s.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
			s.await("the Service follows", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-1") })
		})
	}
}

// An event that is refused is left out: the next one doesn't wait for it.
func TestEventIsRefused(t *testing.T) {
	s := newStage(t)
	var mu sync.Mutex
	var tried []string
	a := s.operator(func(a *actor) {
		a.refuses = func(r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/events") {
				return false
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			tried = append(tried, string(body))
			return true
		}
	})
	s.settled(a)
	s.elect("ledger", "ledger-1", 8)
	s.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	s.await("the next event has been tried", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(tried, func(body string) bool { return strings.Contains(body, "ledger-1 became coordinator in term 8") })
	})
	s.awaitCondition("ledger", v1.Ready, v1.ReasonHealthy)
	s.awaitQuiet(a)
	mu.Lock()
	defer mu.Unlock()
	if len(tried) != 2 {
		t.Errorf("each of two events should be tried once: %q", tried)
	}
}
