package controllers

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/decide"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
)

// groupState is what the reconciler retains about a group between reconciles. A group has
// one reconcile at a time, so the state needs no lock.
type groupState struct {
	uid    types.UID
	memory decide.Memory
	// publishError is the API server's reason for rejecting what has to be written before a
	// document, and routingError that for the Service, its EndpointSlice or a role label.
	publishError, routingError writeError
	// pendingEvents are about changes that are in the status, and not written yet. Before them,
	// droppedEvents were left out because of the limit.
	pendingEvents []groupstatus.Event
	droppedEvents int
	limits        groupLimits
}

// groupStates are the states of all groups.
type groupStates struct {
	mu     sync.Mutex
	groups map[types.NamespacedName]*groupState
	// deleted are the highest revisions of deleted groups. Agents accept only newer ones of the next group of the same
	// name. Only revisions that are ahead of the clock are retained: the next revision exceeds the others anyway.
	deleted map[types.NamespacedName]int64
}

// get returns the state of a group. It is new for another group of the same name.
func (g *groupStates) get(group types.NamespacedName, uid types.UID) *groupState {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.groups == nil {
		g.groups = map[types.NamespacedName]*groupState{}
	}
	if state := g.groups[group]; state != nil && state.uid != uid {
		g.remove(group)
	}
	if g.groups[group] == nil {
		g.groups[group] = &groupState{
			uid: uid, memory: decide.Memory{Revision: g.deleted[group]}, limits: newGroupLimits(),
		}
	}
	return g.groups[group]
}

// forget removes the state of a deleted group, except for its revision.
func (g *groupStates) forget(group types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(group)
}

// forgetAll is forget for all groups.
func (g *groupStates) forgetAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for group := range g.groups {
		g.remove(group)
	}
}

// remove implements forget. The caller holds the lock.
func (g *groupStates) remove(group types.NamespacedName) {
	if g.deleted == nil {
		g.deleted = map[types.NamespacedName]int64{}
	}
	if state := g.groups[group]; state != nil {
		g.deleted[group] = state.memory.Revision
		delete(g.groups, group)
	}
	now := time.Now().UnixMilli()
	maps.DeleteFunc(g.deleted, func(_ types.NamespacedName, revision int64) bool { return revision < now })
}
