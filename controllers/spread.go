package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/operator/decide/spread"
)

// Moves cost each application a hand-over, and the API server about ten writes. These limits bound what groups of one
// tenant, which come and go, cost the groups of others.
const (
	// movesPerSecond limits the moves of all groups. Namespaces take turns.
	movesPerSecond = 5
	// moveInterval is the time between two moves of one group.
	moveInterval = 5 * time.Minute
	// moveTimeout is how long the list of a group may take to change, also with a long lease or on a busy machine. Then
	// the operator gives the move up.
	moveTimeout = time.Minute
)

// spreader spreads the coordinators of groups with spec.preemption.spread: see package spread.
type spreader struct {
	// isChanged: such a group was reconciled.
	isChanged atomic.Bool

	// located is where the preferred members of groups were last. A pod that is being replaced moves no other group.
	located map[types.UID]string
	// lastNamespace is that of the last move: the others come first in the next run.
	lastNamespace string

	mu sync.Mutex
	// pending has the moves that aren't in the list of the group yet.
	pending map[types.NamespacedName]pendingMove
	// movedAt is when a group last moved, also if it has been deleted and created again. After a restart of the operator,
	// each group may move again.
	movedAt map[types.NamespacedName]time.Time
}

type pendingMove struct {
	uid   types.UID
	pod   string
	since time.Time
}

func newSpreader() *spreader {
	return &spreader{
		located: map[types.UID]string{},
		pending: map[types.NamespacedName]pendingMove{}, movedAt: map[types.NamespacedName]time.Time{},
	}
}

// preferred returns the member that a group is to prefer, or "".
func (s *spreader) preferred(group types.NamespacedName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending[group].pod
}

// spreadCoordinators runs the spreader until the context ends: after a change, and when a group may move again.
func (r *Reconciler) spreadCoordinators(ctx context.Context) {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			isDue := !next.IsZero() && !now.Before(next)
			if changed := r.spread.isChanged.Swap(false); !r.leads() || !changed && !isDue {
				continue
			}
			var err error
			if next, err = r.moveCoordinators(ctx, now); err != nil {
				r.log.Error(err, "cannot spread coordinators")
				next = now
			}
		}
	}
}

// moveCoordinators moves groups as far as the limits permit. It returns when a group that must not move now may move;
// zero if there is none.
func (r *Reconciler) moveCoordinators(ctx context.Context, now time.Time) (next time.Time, err error) {
	all, err := r.placements(ctx, now)
	if err != nil {
		return next, err
	}
	r.spread.mu.Lock()
	defer r.spread.mu.Unlock()
	maps.DeleteFunc(r.spread.movedAt,
		func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) >= moveInterval })
	uids, groups := map[types.NamespacedName]types.UID{}, make([]spread.Group, len(all))
	for i := range all {
		p := &all[i]
		uids[p.Name] = p.uid
		next = facts.Earliest(next, r.spread.hold(p, now))
		groups[i] = p.Group
	}
	maps.DeleteFunc(r.spread.pending,
		func(name types.NamespacedName, move pendingMove) bool { return uids[name] != move.uid })
	moves := spread.Moves(groups, movesPerSecond)
	for _, move := range moves {
		r.spread.pending[move.Group] = pendingMove{uid: uids[move.Group], pod: move.Pod, since: now}
		r.spread.lastNamespace = move.Group.Namespace
		r.log.Info("moving the coordinator", "group", move.Group, "to", move.Pod)
		r.trigger(move.Group, 0)
	}
	if len(moves) > 0 {
		next = now.Add(time.Second)
	}
	return next, nil
}

// hold takes the moves of a group into account that are in progress or recent. If the group must not move yet for such
// a reason, it returns when it may. The caller holds the lock.
func (s *spreader) hold(p *placement, now time.Time) (until time.Time) {
	if move, ok := s.pending[p.Name]; ok {
		if move.uid == p.uid && move.pod != p.first && now.Sub(move.since) < moveTimeout {
			p.Location, p.Alternatives = p.locations[move.pod], nil
			return move.since.Add(moveTimeout)
		}
		delete(s.pending, p.Name)
		s.movedAt[p.Name] = now
	}
	if moved, ok := s.movedAt[p.Name]; ok && len(p.Alternatives) > 0 {
		p.Alternatives = nil
		return moved.Add(moveInterval)
	}
	return until
}

// placement is where the members of a group are.
type placement struct {
	spread.Group

	uid types.UID
	// first is the preferred member, and locations has those of all members.
	first     string
	locations map[string]string
}

// placements returns the placement of each group with spread. The namespaces after that of the last move come first.
func (r *Reconciler) placements(ctx context.Context, now time.Time) ([]placement, error) {
	var groups v1.ElectionGroupList
	if err := r.cached.List(ctx, &groups, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	var all []placement
	exist := map[types.UID]bool{}
	for i := range groups.Items {
		g := &groups.Items[i]
		if g.Spec.Preemption.Spread == "" || g.DeletionTimestamp != nil {
			continue
		}
		exist[g.UID] = true
		p, err := r.placementOf(ctx, g, now)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	maps.DeleteFunc(r.spread.located, func(uid types.UID, _ string) bool { return !exist[uid] })
	later := func(p *placement) int {
		if p.Name.Namespace > r.spread.lastNamespace {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b placement) int {
		return cmp.Or(cmp.Compare(later(&a), later(&b)), cmp.Compare(a.Name.Namespace, b.Name.Namespace),
			cmp.Compare(a.Name.Name, b.Name.Name))
	})
	return all, nil
}

// placementOf returns where the members of a group are, and which others it could prefer: none unless its preferred
// member leads, and its list has settled.
func (r *Reconciler) placementOf(ctx context.Context, g *v1.ElectionGroup, now time.Time) (placement, error) {
	p := placement{
		Group: spread.Group{Name: client.ObjectKeyFromObject(g), Over: g.Spec.Preemption.Spread}, uid: g.UID,
		locations: map[string]string{},
	}
	members := facts.New(g)
	if err := r.addPods(ctx, members, membership.MembersOf(g)); err != nil {
		return p, err
	}
	for name, pod := range members.Pods {
		p.locations[name] = membership.Location(pod, members.Nodes[pod.Spec.NodeName], p.Over)
	}
	first, others := membership.EquallyPreferred(members)
	p.first, p.Location = first, cmp.Or(p.locations[first], r.spread.located[g.UID])
	r.spread.located[g.UID] = p.Location
	if c := g.Status.Coordinator; g.Status.Protocol.MemberList == nil ||
		g.Status.Protocol.MemberList.State != v1.ListSettled || c == nil || c.Pod != first {
		return p, nil // Something else is going on. Another reconcile follows it.
	}
	for _, name := range others {
		pod, report := members.Pods[name], members.Report(name)
		if p.locations[name] != "" && !membership.LosesCoordinators(members.Nodes[pod.Spec.NodeName], now) &&
			pod.DeletionTimestamp == nil && members.Accepts(name) && report != nil && report.Eligible {
			p.Alternatives = append(p.Alternatives, spread.Alternative{Pod: name, Location: p.locations[name]})
		}
	}
	return p, nil
}
