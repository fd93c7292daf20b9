package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// A replica that isn't the leader is a standby. It is connected to the agents, too, and its
// cache is up to date, but it leaves the writes to the leader. There is one exception: if the
// leader hasn't written the result of an election after LeaderGrace, the standby does, with all
// that follows from it. So Services follow elections also between the crash of the leader and
// the end of its Lease, for example when the leader and a coordinator were on the same node.
//
// If the leader is only slow, both write. That does no harm: see the package comment. It can't
// go on, either: a standby writes at most once for each term, and terms only grow.

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

// awaitLeader reports whether the leader is late: agents have reported a newer term than the
// status for LeaderGrace. Otherwise, it returns how long to wait; 0 if the status isn't behind.
func (r *Reconciler) awaitLeader(group *v1.ElectionGroup) (late bool, wait time.Duration) {
	key := client.ObjectKeyFromObject(group)
	state := r.states.get(key, group.UID)
	if state.standbyWrites {
		return true, 0 // The previous reconcile failed halfway.
	}
	newer := false
	for _, report := range r.streams.Reports(key) {
		newer = newer || int64(report.Report.Term) > group.Status.Term
	}
	switch now := time.Now(); {
	case !newer:
		state.behindSince = time.Time{}
		return false, 0
	case state.behindSince.IsZero():
		state.behindSince = now
		return false, r.options.LeaderGrace
	default:
		wait = state.behindSince.Add(r.options.LeaderGrace).Sub(now)
		return wait <= 0, max(wait, 0)
	}
}

// hasNewTerm reports whether the status that follows from a snapshot has a coordinator in a
// newer term. A single agent that reports one isn't sufficient: see groupstatus.
func (s *snapshot) hasNewTerm() bool {
	s.state.behindSince = time.Time{}
	plan := membership.MakePlan(s.membershipFacts())
	next := groupstatus.Evaluate(s.statusFacts(&plan)).Status
	return next.Coordinator != nil && next.Term > s.group.Status.Term
}
