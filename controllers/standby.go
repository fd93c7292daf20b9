package controllers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// A replica that isn't the leader is a standby. It is connected to the agents, too, and its
// cache is up to date, but it leaves the writes to the leader. There is one exception: if the
// leader hasn't written the result of an election, or the loss of the coordinator, after
// LeaderGrace, the standby does, with all that follows from it. So Services follow the
// coordinator also between the crash of the leader and the end of its Lease, for example when
// the leader and a coordinator were on the same node.
//
// If the leader is only slow, both write. That does no harm: see the package comment. It can't
// go on, either: in each term, a standby writes at most one election, one loss, and that the
// loss was wrong. And terms only grow.

// standbyState is what a standby retains about a group between reconciles.
type standbyState struct {
	// behindSince is since when the status has been behind the agents' reports.
	behindSince time.Time
	// unfinished: the standby wrote the status, and not all that follows from it.
	unfinished bool
	// lostTerm is the last term of which the standby wrote that it lost its coordinator, and
	// foundTerm the last one of which it wrote afterwards that the coordinator was not lost.
	lostTerm, foundTerm int64
}

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

// reconcileStandby does what the leader is late with: see above.
func (r *Reconciler) reconcileStandby(ctx context.Context, s *snapshot) error {
	// A standby doesn't notice each time when a majority is connected again.
	defer func() { s.state.majorityLostAt = time.Time{} }()
	state := &s.state.standby
	if !s.leaderMissesChange() {
		state.behindSince = time.Time{}
		return r.finish(ctx, s)
	}
	err := r.decideAndApply(ctx, s)
	if (err == nil || apierrors.IsConflict(err)) && s.writableAt.IsZero() {
		state.behindSince = time.Time{}
	}
	if err == nil {
		r.metrics.reconciles.Inc()
	}
	state.unfinished = err != nil
	was, is := s.initialStatus.Coordinator, s.group.Status.Coordinator
	switch {
	case was != nil && is == nil:
		state.lostTerm = was.Term
	case was == nil && is != nil && is.Term == state.lostTerm:
		state.foundTerm = is.Term
	}
	return err
}

// awaitLeader reports whether the leader is late: for LeaderGrace, the status hasn't had what
// agents report. Otherwise, it returns how long to wait; 0 if the status isn't behind.
func (r *Reconciler) awaitLeader(group *v1.ElectionGroup) (late bool, wait time.Duration) {
	key := client.ObjectKeyFromObject(group)
	state := &r.states.get(key, group.UID).standby
	if state.unfinished {
		return true, 0
	}
	behind := false
	for _, report := range r.agents.Reports(key) {
		behind = behind || report.Report.UID == string(group.UID) && state.isBehind(&group.Status, report.Report)
	}
	switch now := time.Now(); {
	case !behind:
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

// isBehind reports whether an agent reports a newer term than the status has, or that the
// coordinator in the status has been lost, or that it hasn't. That isn't sufficient: see
// leaderMissesChange.
func (state *standbyState) isBehind(status *v1.ElectionGroupStatus, report *control.Report) bool {
	term := int64(min(report.Term, control.MaxTerm+1)) //nolint:gosec // It is bounded.
	if c := status.Coordinator; c != nil && report.Coordinator == "" && term >= c.Term && c.Term > state.lostTerm {
		return true
	}
	return term > status.Term || status.Coordinator == nil && report.Coordinator != "" && state.mayFind(term)
}

// mayFind reports whether the standby wrote the loss of the coordinator in a term, and hasn't
// written that this was wrong.
func (state *standbyState) mayFind(term int64) bool {
	return term == state.lostTerm && term > state.foundTerm
}

// leaderMissesChange reports whether the status that follows from a snapshot has a coordinator
// in a newer term, or none anymore. A single agent that reports that isn't sufficient, nor are
// agents that the standby can't reach: see groupstatus.
func (s *snapshot) leaderMissesChange() bool {
	state := &s.state.standby
	plan := membership.MakePlan(s.membershipFacts())
	was, next := &s.group.Status, groupstatus.Evaluate(s.statusFacts(&plan)).Status
	switch {
	case next.Coordinator == nil:
		return was.Coordinator != nil && was.Coordinator.Term > state.lostTerm
	case was.Coordinator == nil && state.mayFind(next.Coordinator.Term):
		return true
	}
	return next.Term > was.Term
}

// finish repeats what failed after the standby had written the status. It doesn't write the
// status again: a leader that hears other agents may have written it since.
func (r *Reconciler) finish(ctx context.Context, s *snapshot) error {
	state := &s.state.standby
	if !state.unfinished {
		return nil
	}
	plan := membership.MakePlan(s.membershipFacts())
	result := groupstatus.Evaluate(s.statusFacts(&plan))
	if !sameCoordinator(s.group.Status.Coordinator, result.Status.Coordinator) {
		state.unfinished = false // The leader decides.
		return nil
	}
	routingErrs, eventErr := r.applyTraffic(ctx, s, &plan, &result)
	err := errors.Join(append(routingErrs, eventErr)...)
	state.unfinished = err != nil
	return err
}
