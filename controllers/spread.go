package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/operator/decide/spread"
)

// Moves cost each application a hand-over, and the API server about ten writes. These limits bound what groups of one
// tenant, which come and go, cost the groups of others.
const (
	// movesPerSecond limits the moves of all groups.
	movesPerSecond = 5
	// moveInterval is the time between two moves of one group.
	moveInterval = 5 * time.Minute
	// moveTimeout is how long the list of a group may take to change. Then the operator gives the move up.
	moveTimeout = 10 * time.Second
)

// spreader spreads the coordinators of groups with spec.preemption.spread: see package spread. It runs when such a group
// was reconciled.
type spreader struct {
	wake chan struct{}

	mu sync.Mutex
	// pending has the moves that aren't in the list of the group yet.
	pending map[types.NamespacedName]pendingMove
	// movedAt is when a group last moved. After a restart of the operator, each group may move again.
	movedAt map[types.UID]time.Time
}

type pendingMove struct {
	uid   types.UID
	pod   string
	since time.Time
}

func newSpreader() *spreader {
	return &spreader{wake: make(chan struct{}, 1), pending: map[types.NamespacedName]pendingMove{}, movedAt: map[types.UID]time.Time{}}
}

// changed makes the spreader run.
func (s *spreader) changed() {
	select {
	case s.wake <- struct{}{}:
	default: // It will run anyway.
	}
}

// preferred returns the member that a group is to prefer, or "".
func (s *spreader) preferred(group types.NamespacedName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[group].pod
}

// spreadCoordinators runs the spreader until the context ends.
func (r *Reconciler) spreadCoordinators(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-r.spread.wake:
		}
		wait := moveInterval
		if r.leads() {
			at, err := r.moveCoordinators(ctx, time.Now())
			if err != nil {
				r.log.Error(err, "cannot spread coordinators")
				at = time.Now().Add(time.Second)
			}
			if !at.IsZero() {
				wait = time.Until(at)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		next.Reset(max(wait-time.Second, 0))
	}
}

// moveCoordinators moves groups as far as the limits permit. It returns when a group that must not move now may move; zero
// if there is none.
func (r *Reconciler) moveCoordinators(ctx context.Context, now time.Time) (next time.Time, err error) {
	var all v1.ElectionGroupList
	if err := r.cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return next, fmt.Errorf("list groups: %w", err)
	}
	slices.SortFunc(all.Items, func(a, b v1.ElectionGroup) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	r.spread.mu.Lock()
	defer r.spread.mu.Unlock()
	var groups []spread.Group
	uids, exist := map[types.NamespacedName]types.UID{}, map[types.UID]bool{}
	for i := range all.Items {
		g := &all.Items[i]
		if g.Spec.Preemption.Spread == "" || g.DeletionTimestamp != nil {
			continue
		}
		uids[client.ObjectKeyFromObject(g)], exist[g.UID] = g.UID, true
		placed, at, err := r.placement(ctx, g, now)
		if err != nil {
			return next, err
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
		groups = append(groups, placed)
	}
	maps.DeleteFunc(r.spread.movedAt, func(uid types.UID, _ time.Time) bool { return !exist[uid] })
	maps.DeleteFunc(r.spread.pending, func(_ types.NamespacedName, move pendingMove) bool { return !exist[move.uid] })
	moves := spread.Moves(groups, movesPerSecond)
	for _, move := range moves {
		r.spread.pending[move.Group] = pendingMove{uid: uids[move.Group], pod: move.Pod, since: now}
		r.log.Info("moving the coordinator", "group", move.Group, "to", move.Pod)
		r.trigger(move.Group, 0)
	}
	if len(moves) > 0 {
		next = now.Add(time.Second)
	}
	return next, nil
}

// placement returns where the preferred member of a group is, and which others it could prefer. If a group must not move
// yet because it has moved, it also returns when it may. The caller holds the lock of the spreader.
func (r *Reconciler) placement(ctx context.Context, g *v1.ElectionGroup, now time.Time) (placed spread.Group, next time.Time, err error) {
	key := client.ObjectKeyFromObject(g)
	placed = spread.Group{Name: key, Over: g.Spec.Preemption.Spread}
	facts, pods, err := r.membersOf(ctx, g)
	if err != nil {
		return placed, next, err
	}
	location := func(name string) (string, *corev1.Node) {
		pod := pods[name]
		if pod == nil {
			return "", nil
		}
		node := facts.Nodes[pod.Spec.NodeName]
		return membership.Location(pod, node, placed.Over), node
	}
	first, others := facts.EquallyPreferred()
	if move, ok := r.spread.pending[key]; ok {
		if move.uid == g.UID && move.pod != first && now.Sub(move.since) < moveTimeout {
			placed.Location, _ = location(move.pod)
			return placed, move.since.Add(moveTimeout), nil
		}
		delete(r.spread.pending, key)
		r.spread.movedAt[g.UID] = now
	}
	placed.Location, _ = location(first)
	if c := g.Status.Coordinator; g.Status.MemberList == nil || g.Status.MemberList.State != v1.ListSettled || c == nil || c.Pod != first {
		return placed, next, nil // Something else is going on. Another reconcile follows it.
	}
	if moved, ok := r.spread.movedAt[g.UID]; ok && now.Sub(moved) < moveInterval {
		return placed, moved.Add(moveInterval), nil
	}
	reports := r.agents.Reports(key)
	for _, name := range others {
		at, node := location(name)
		report := reports[name]
		if at != "" && !membership.LosesCoordinators(node, now) && r.canLead(g, pods[name], report) {
			placed.Alternatives = append(placed.Alternatives, spread.Alternative{Pod: name, Location: at})
		}
	}
	return placed, next, nil
}

// canLead reports whether the agent of a pod says that the member may be elected.
func (r *Reconciler) canLead(g *v1.ElectionGroup, pod *corev1.Pod, report agents.AgentReport) bool {
	connection, _ := r.connection(pod)
	return pod.DeletionTimestamp == nil && connection.Accepts(g.Name) &&
		report.UID == pod.UID && report.Report.UID == string(g.UID) && report.Report.Eligible
}

// membersOf returns the pods of the members of a group and their nodes, from the cache.
func (r *Reconciler) membersOf(ctx context.Context, g *v1.ElectionGroup) (membership.Facts, map[string]*corev1.Pod, error) {
	facts := membership.Facts{Group: g}
	pods := map[string]*corev1.Pod{}
	if g.Status.MemberList == nil {
		return facts, pods, nil
	}
	for _, m := range g.Status.MemberList.Members {
		var pod corev1.Pod
		err := r.cached.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: m.Pod}, &pod, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return facts, nil, fmt.Errorf("read pod %s: %w", m.Pod, err)
		}
		if err == nil {
			facts.Pods = append(facts.Pods, &pod)
			pods[m.Pod] = &pod
		}
	}
	var err error
	facts.Nodes, err = r.nodesOf(ctx, pods)
	return facts, pods, err
}
