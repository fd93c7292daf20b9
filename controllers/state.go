package controllers

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
)

// firstListTimeout is how long the first list of a selector waits for the agents of
// all its pods, after the first one has connected.
const firstListTimeout = 3 * time.Second

// groupState is what the reconciler retains about a group between reconciles: mostly,
// since when a condition has held. After a restart, the waits begin again. A group has
// one reconcile at a time, so the state needs no lock.
type groupState struct {
	uid types.UID
	// missingSince is since when members have had no pod, while missingVersion has been
	// in force.
	missingSince   map[string]time.Time
	missingVersion int64
	// majorityLostAt is since when no majority of the members has been connected; zero if one is.
	majorityLostAt time.Time
	// firstConnected is when the first agent connected.
	firstConnected time.Time
	// revision is the highest known one. An agent that leaves an earlier group of the
	// same name accepts only newer documents, but doesn't report that revision anymore.
	revision int64
	// published is what this operator last published, nil if it published nothing. The status has it,
	// too, unless the field was lost there.
	published *v1.PublishedDocument
	// publishError is the API server's reason for rejecting what has to be written before a
	// document, and routingError that for the Service, its EndpointSlice or a role label.
	publishError, routingError writeError
	// pendingEvents are about changes that are in the status, and not written yet. Before them,
	// droppedEvents were left out because of the limit.
	pendingEvents []groupstatus.Event
	droppedEvents int
	// eventsRecovered: recoverEvents has run.
	eventsRecovered bool
	// latestChange is the newest ChangedAt of the reports that are in the status.
	latestChange time.Time
	// userTerm is the term for which addUser has asked the API server.
	userTerm int64
	// electedAt is when the operator last saw a new coordinator, and vacantSince since
	// when there has been none.
	electedAt, vacantSince time.Time
	limits                 groupLimits
	explaining             explainingPods
	// standby is what only a standby uses.
	standby standbyState
}

// groupStates are the states of all groups.
type groupStates struct {
	mu     sync.Mutex
	groups map[types.NamespacedName]*groupState
	// deleted are the highest revisions of deleted groups. Agents accept only newer ones
	// of the next group of the same name. Only revisions that are ahead of the clock are
	// retained: the next revision exceeds the others anyway.
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
		g.groups[group] = &groupState{uid: uid, revision: g.deleted[group], limits: newGroupLimits()}
	}
	return g.groups[group]
}

// forget removes the state of a deleted group, except for its revision.
func (g *groupStates) forget(group types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(group)
}

// remove implements forget. The caller holds the lock.
func (g *groupStates) remove(group types.NamespacedName) {
	if g.deleted == nil {
		g.deleted = map[types.NamespacedName]int64{}
	}
	if state := g.groups[group]; state != nil {
		g.deleted[group] = state.revision
		delete(g.groups, group)
	}
	now := time.Now().UnixMilli()
	maps.DeleteFunc(g.deleted, func(_ types.NamespacedName, revision int64) bool { return revision < now })
}

// deadline is the earliest time at which a decision changes although nothing else has
// changed; zero if there is none.
type deadline struct{ at time.Time }

// reached reports whether a time has come. If not, the deadline is at that time at the
// latest.
func (d *deadline) reached(at, now time.Time) bool {
	if !now.Before(at) {
		return true
	}
	if d.at.IsZero() || at.Before(d.at) {
		d.at = at
	}
	return false
}
