package controllers

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// A pod that leads two groups loses both at once, as when its node is evacuated. The reconciles of both groups read the pod
// before either writes. The next reconcile corrects the annotation.
func TestDeletionCostAfterConcurrentChanges(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "a", UID: "u", Labels: map[string]string{
		"pod-template-hash": "x", v1.RoleLabel("ledger"): v1.RoleCoordinator, v1.RoleLabel("audit"): v1.RoleCoordinator,
	}, Annotations: map[string]string{corev1.PodDeletionCost: v1.CoordinatorDeletionCost}}}
	var both sync.WaitGroup
	both.Add(2)
	api := fake.NewClientBuilder().WithScheme(testclient.Scheme()).WithObjects(pod).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
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
