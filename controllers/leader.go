package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultLeaderGrace is much longer than a leader needs, even at dozens of elections a second.
const defaultLeaderGrace = 500 * time.Millisecond

// leads reports whether this replica is the leader.
func (r *Reconciler) leads() bool {
	select {
	case <-r.elected:
		return true
	default:
		return false
	}
}

// watchElection triggers all groups when this replica becomes the leader, also those that have
// been deleted and that pods still belong to.
func (r *Reconciler) watchElection(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.elected:
	}
	r.triggerAll(ctx)
	var pods corev1.PodList
	if err := r.cached.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		r.log.Error(err, "cannot list pods")
	}
	for i := range pods.Items {
		for _, request := range r.groupsOfPod(ctx, &pods.Items[i]) {
			r.trigger(request.NamespacedName, 0)
		}
	}
}
