package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// startTriggers starts the triggers of the group controller that aren't watches.
func (r *Reconciler) startTriggers(ctx context.Context,
	q workqueue.TypedRateLimitingInterface[reconcile.Request],
) error {
	r.queue.Store(&q)
	go r.followLeadership(ctx)
	go r.spreadCoordinators(ctx)
	go r.services.follow(ctx, func() { r.triggerAll(ctx) })
	return nil
}

// onAgentChanged triggers the groups that a change of an agent's report or connection affects: see agents.Options.
func (r *Reconciler) onAgentChanged(pod types.NamespacedName, group string) {
	if group != "" {
		r.trigger(types.NamespacedName{Namespace: pod.Namespace, Name: group}, r.options.Debounce)
		left := v1.IsWitness(pod.Name) && len(r.agents.Groups(pod)) == 0
		if left && len(r.groupsWithMember(context.Background(), pod)) == 0 {
			r.agents.Forget(pod) // That was the last group of the namespace.
		}
		return
	}
	var found corev1.Pod
	err := r.cached.Get(context.Background(), pod, &found, client.UnsafeDisableDeepCopy)
	if err != nil {
		found.Namespace, found.Name = pod.Namespace, pod.Name
	}
	for _, request := range r.groupsOfPod(context.Background(), &found) {
		r.trigger(request.NamespacedName, r.options.Debounce)
	}
}

// reconcileAgent keeps a stream open to a pod's agent as long as the pod has one.
func (r *Reconciler) reconcileAgent(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if v1.IsWitness(request.Name) {
		return reconcile.Result{}, nil // Groups connect to their witnesses.
	}
	var pod corev1.Pod
	err := r.cached.Get(ctx, request.NamespacedName, &pod, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, err
	case apierrors.IsNotFound(err), !membership.IsFollowed(&pod):
		r.agents.Forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	r.followAgent(&pod)
	return reconcile.Result{}, nil
}
