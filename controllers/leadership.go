package controllers

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// Leadership is whether this replica is the leader. A replica that isn't anymore goes on as a standby: two that write
// at once do no harm, and the connections to agents remain.
type Leadership struct {
	leads atomic.Bool
	// lost: the replica has ceased to lead since followLeadership has acted. It may lead again by now.
	lost    atomic.Bool
	changed chan struct{}
}

// NewLeadership returns that of a standby.
func NewLeadership() *Leadership { return &Leadership{changed: make(chan struct{}, 1)} }

// Set makes this replica the leader or a standby.
func (l *Leadership) Set(leads bool) {
	if was := l.leads.Swap(leads); was && !leads {
		l.lost.Store(true)
	}
	select {
	case l.changed <- struct{}{}:
	default: // A signal is pending.
	}
}

// leads reports whether this replica is the leader.
func (r *Reconciler) leads() bool { return r.options.Leadership.leads.Load() }

// followLeadership acts on changes until the context ends.
func (r *Reconciler) followLeadership(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.options.Leadership.changed:
		}
		if r.options.Leadership.lost.Swap(false) { // What a leader remembers is out of date when it leads again.
			r.states.forgetAll()
			r.metrics.forgetAll()
		}
		if r.leads() {
			r.begin(ctx)
		}
	}
}

// begin triggers all groups, also those that have been deleted and that pods still belong to, and all pods.
func (r *Reconciler) begin(ctx context.Context) {
	r.triggerAll(ctx)
	var pods corev1.PodList
	if err := r.cached.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		r.log.Error(err, "cannot list pods")
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, request := range r.groupsOfPod(ctx, pod) {
			r.trigger(request.NamespacedName, 0)
		}
		if q := r.selection.Load(); q != nil && membership.BySelection(pod) {
			(*q).Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
}
