package live_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// startOf creates a pod in the namespace of the operator, in this phase.
func startOf(t *testing.T, w *world, component string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: component + "-"}}
	pod.Labels = map[string]string{"app.kubernetes.io/name": "conclave", "app.kubernetes.io/component": component}
	pod.Spec.Containers = []corev1.Container{{Name: component, Image: "any/thing:1"}}
	must.Succeed(w.t, w.Create(t.Context(), pod))
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must.Succeed(w.t, w.Status().Update(t.Context(), pod))
	return pod
}

// The pod by which Helm uninstalls the operator runs beside it and has the same name. A pod of the operator that was
// evicted remains, and isn't replaced.
func TestOnlyTheOperatorIsDeleted(t *testing.T) {
	w := newWorld(t, bugs{})
	other := startOf(t, w, "uninstall", corev1.PodRunning)
	manager := startOf(t, w, "manager", corev1.PodRunning)
	startOf(t, w, "manager", corev1.PodFailed)
	r := w.run(1, chaos.Manager)
	r.Timeout = 20 * time.Second
	r.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object,
			options ...client.DeleteAllOfOption,
		) error {
			err := c.DeleteAllOf(ctx, o, options...)
			startOf(t, w, "manager", corev1.PodRunning) //nolint:contextcheck // it uses that of the test
			return err
		},
	})
	if result := do(t, r); len(result.Violations) > 0 || len(result.Faults) != 1 || result.Faults[0].Refused != "" {
		t.Errorf("got %+v, want one fault without violations", result)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil || other.DeletionTimestamp != nil {
		t.Errorf("got %v, want the other pod to remain", err)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(manager),
		manager); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("got %v, want the operator's pod to be deleted", err)
	}
}

// Without a pod of the operator, nothing would be tested, for example if its namespace is wrong.
func TestMissingOperatorIsReported(t *testing.T) {
	w := newWorld(t, bugs{})
	r := w.run(1, chaos.Manager)
	expect.Equalf(t, do(t, r).Faults[0].Refused, "no pod of the operator runs in namespace "+w.namespace, "refusal")
}

// The group doesn't need the operator to settle, but the fault isn't over as long as nothing replaces it.
func TestOperatorThatIsNotReplacedIsReported(t *testing.T) {
	w := newWorld(t, bugs{})
	startOf(t, w, "manager", corev1.PodRunning)
	r := w.run(1, chaos.Manager)
	r.Timeout = 10 * time.Second
	result := do(t, r)
	if len(result.Violations) != 1 || result.Violations[0].Invariant != chaos.Recovery || result.Faults[0].Settled != nil {
		t.Errorf("got %+v, want that the operator isn't replaced", result)
	}
}

// The user must learn about a fault that remains, also if they interrupted the run, or if a part of the fault was
// refused.
func TestFaultThatRemainsIsReported(t *testing.T) {
	for _, kind := range []string{chaos.Cordon, chaos.Drain} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, bugs{})
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}
			must.Succeed(w.t, w.Create(t.Context(), node))
			t.Cleanup(func() { must.Succeed(w.t, w.Delete(context.Background(), node)) })
			r := w.run(1, kind)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			patches := 0
			r.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
					options ...client.PatchOption,
				) error {
					if patches++; patches > 1 {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, o.GetName(), errors.New("no permission"))
					}
					if kind == chaos.Cordon {
						defer cancel()
					}
					return c.Patch(ctx, o, patch, options...)
				},
				SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object,
					...client.SubResourceCreateOption,
				) error {
					return apierrors.NewTooManyRequests("disruption budget", 0)
				},
			})
			if _, err := r.Do(ctx); err == nil ||
				!strings.Contains(err.Error(), "cannot undo "+kind+": nodes \"node-2\" is forbidden") {
				t.Errorf("got %v, want that the fault remains", err)
			}
		})
	}
}

// Nothing would replace such a pod after the run.
func TestPodWithoutControllerIsNotDeleted(t *testing.T) {
	w := newWorld(t, bugs{unowned: true})
	r := w.run(2, chaos.ForcePod, chaos.Evict)
	for _, f := range do(t, r).Faults {
		expect.Equalf(t, f.Refused, "pod ledger-2 has no controller that would replace it", "why the fault is refused")
	}
}

// A disruption budget usually permits to evict one pod at a time.
func TestDrainThatEvictsTheCoordinatorIsAFault(t *testing.T) {
	w := newWorld(t, bugs{together: true})
	must.Succeed(w.t, w.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}))
	t.Cleanup(func() {
		must.Succeed(w.t, w.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}))
	})
	r := w.run(1, chaos.Drain)
	r.Timeout = 30 * time.Second
	evictions := 0
	r.Client = interceptor.NewClient(r.Client, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, eviction client.Object,
			options ...client.SubResourceCreateOption,
		) error {
			if evictions++; evictions > 1 {
				return apierrors.NewTooManyRequests("disruption budget", 0)
			}
			return c.SubResource(name).Create(ctx, o, eviction, options...)
		},
	})
	if f := do(t, r).Faults[0]; f.Refused != "" || f.Elected == nil || evictions != 2 {
		t.Errorf("got %+v after %d evictions, want a fault", f, evictions)
	}
}

// A change of the template would restart no pods, or not all, which isn't a failure of the group.
func TestRolloutThatRestartsNoPodsIsRefused(t *testing.T) {
	t.Parallel()
	for want, patch := range map[string]string{
		"StatefulSet ledger has the update strategy OnDelete":   `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`,
		"StatefulSet ledger only updates pods from partition 2": `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`,
	} {
		w := newWorld(t, bugs{})
		owner := &appsv1.StatefulSet{ObjectMeta: w.meta(groupName)}
		must.Succeed(w.t, w.Patch(t.Context(), owner, client.RawPatch(types.MergePatchType, []byte(patch))))
		r := w.run(1, chaos.Rollout)
		r.Timeout = 15 * time.Second
		if result := do(t, r); len(result.Violations) > 0 || result.Faults[0].Refused != want {
			t.Errorf("got %+v, want the fault to be refused: %s", result, want)
		}
		must.Succeed(w.t, w.Get(t.Context(), client.ObjectKeyFromObject(owner), owner))
		expect.Equalf(t, owner.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"], "",
			"annotation (an unchanged template)")
	}
}
