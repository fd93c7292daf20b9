package controllers

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
)

// cleanUp removes what remains of a group that has been or is being deleted, also if that happened while no operator
// ran: the role labels and finalizers of its pods. It makes its agents leave; otherwise they would continue to elect.
// Kubernetes' garbage collector deletes the objects that the group owned. If the group is deleted in the foreground,
// that happens before the group itself disappears, so cleanUp doesn't restore them.
func (r *Reconciler) cleanUp(ctx context.Context, key types.NamespacedName) error {
	r.states.forget(key)
	r.metrics.forget(key)
	r.spread.isChanged.Store(true)
	if !r.leads() {
		return nil
	}
	pods, err := r.podsOf(ctx, key)
	if err != nil {
		return err
	}
	var labeled, held []*corev1.Pod
	for i := range pods {
		if _, ok := pods[i].Labels[v1.RoleLabel(key.Name)]; ok {
			labeled = append(labeled, &pods[i])
		}
		if slices.Contains(pods[i].Finalizers, v1.StopFinalizer(key.Name)) {
			held = append(held, &pods[i])
		}
	}
	reports := r.agents.Reports(key)
	if len(labeled) == 0 && len(held) == 0 && len(reports) == 0 {
		return nil
	}
	// The cache may be behind: a group that was just created must not lose its agents.
	now := &v1.ElectionGroup{}
	if err := r.live.Get(ctx, key, now); client.IgnoreNotFound(err) != nil || err == nil && now.DeletionTimestamp == nil {
		return err
	}
	for pod, report := range reports {
		r.agents.Send(types.NamespacedName{Namespace: key.Namespace, Name: pod},
			agents.LeaveGroup(key.Name, report.UID, report.Revision))
	}
	parallel := newParallel()
	for _, pod := range labeled {
		parallel.run(func() error { return r.applyRole(ctx, key.Name, pod, "") })
	}
	releaseErr := r.applyFinalizers(ctx, key.Name, held, false)
	return errors.Join(append(parallel.wait(), releaseErr)...)
}
