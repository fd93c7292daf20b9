package live

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// onePod is an API server with one pod.
type onePod struct {
	client.WithWatch

	uid types.UID
}

func (p onePod) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return errors.ErrUnsupported
	}
	pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: p.uid}}}
	return nil
}

// The pod was deleted and created again before the port was forwarded. What the new agent answers is not what the
// former one did.
func TestAgentOfAnotherPodIsNotObserved(t *testing.T) {
	for uid, observed := range map[types.UID]bool{"1": true, "2": false} {
		agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("id: 1-1\ndata: " +
				"{\"group\":\"ledger\",\"coordinator\":\"ledger-2\",\"leading\":true,\"term\":100,\"token\":104857630}\n\n"))
		}))
		group := ledger()
		group.Forward = func(context.Context, types.NamespacedName, int) (*portforward.Port, error) {
			return portforward.At(agent.URL, ""), nil
		}
		o := NewObserver(onePod{uid: uid}, group)
		ctx, cancel := context.WithCancel(t.Context())
		observing, ended := context.WithCancel(t.Context())
		go func() {
			defer ended()
			agent := chaos.Agent{Pod: "ledger-2", UID: "1"}
			_ = o.through(ctx, group.Forward, 1, agent,
				func(ctx context.Context, url string) error { return group.watchAgent(ctx, o, agent, url) })
		}()
		o.Await(observing, func(r *chaos.Record, _ *chaos.State) bool { return len(r.Changes) > 0 })
		cancel()
		<-observing.Done()
		agent.Close()
		expect.Equalf(t, len(o.record.Changes) > 0, observed, "pod %s is observed", uid)
	}
}

func ledger() *Group {
	return &Group{Object: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}}
}

// A pod that leaves the group, and is deleted afterwards, isn't one of the group's.
func TestFormerMemberIsForgotten(t *testing.T) {
	o := NewObserver(nil, ledger())
	pod := &corev1.Pod{}
	pod.Name, pod.UID, pod.Annotations = "ledger-2", "1", map[string]string{v1.AnnotationGroups: "ledger"}
	o.podChanged(t.Context(), pod, false)
	if o.pod("1") == nil {
		t.Fatal("got no pod, want the member")
	}
	pod = pod.DeepCopy()
	pod.Annotations[v1.AnnotationGroups] = "mail"
	if o.podChanged(t.Context(), pod, false); o.pod("1") != nil {
		t.Errorf("got %+v, want no pod", o.pod("1"))
	}
}
