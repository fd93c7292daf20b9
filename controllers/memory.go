package controllers

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
)

// patience is how long the first list of a selector waits for the agents of all
// its pods, from the first one on.
const patience = 3 * time.Second

// memory is what the operator remembers of a group: since when something has
// been so. After a restart the waits begin anew. Only who looks at the group
// uses it, and that is one at a time.
type memory struct {
	uid types.UID
	// missing is since when members have had no pod, while version was in force.
	missing map[string]time.Time
	version int64
	// first is when the first agent was connected.
	first time.Time
	// revision is the highest that there has been: who leaves an earlier group of the
	// name takes nothing that isn't newer, but tells of it no more.
	revision int64
	// unpublished is what the API server has against the ConfigMap, and unrouted what
	// it has against the Service, its slice or a role label.
	unpublished, unrouted refusal
	// events are those yet to be written of changes that are in the status already.
	events []groupstatus.Event
	// recalled: it has been seen to that the events of before our time are there.
	recalled bool
	// reflected is the newest change of an agent's that is in the status.
	reflected time.Time
	// elected is when a coordinator was last seen to be a new one, and vacant
	// since when nobody has led.
	elected, vacant time.Time
}

// memories are those of all groups.
type memories struct {
	mu sync.Mutex
	of map[types.NamespacedName]*memory
	// over are the revisions up to which what was said about a name is over, of groups
	// that are gone: agents take nothing older of the next one. Only those that are still
	// to come by our clock are kept; the others are passed anyway.
	over map[types.NamespacedName]int64
}

// recall is the memory of a group, new if it is another one of the same name.
func (m *memories) recall(group types.NamespacedName, uid types.UID) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[types.NamespacedName]*memory{}
	}
	if found := m.of[group]; found != nil && found.uid != uid {
		m.end(group)
	}
	if m.of[group] == nil {
		m.of[group] = &memory{uid: uid, revision: m.over[group]}
	}
	return m.of[group]
}

func (m *memories) forget(group types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end(group)
}

// end is called with the lock held.
func (m *memories) end(group types.NamespacedName) {
	if m.over == nil {
		m.over = map[types.NamespacedName]int64{}
	}
	if gone := m.of[group]; gone != nil {
		m.over[group] = gone.revision
		delete(m.of, group)
	}
	now := time.Now().UnixMilli()
	maps.DeleteFunc(m.over, func(_ types.NamespacedName, revision int64) bool { return revision < now })
}

// deadline is the next time at which a decision is due.
type deadline struct{ at time.Time }

// due reports whether a time has come. If not, it is one to look again at.
func (d *deadline) due(at, now time.Time) bool {
	if !now.Before(at) {
		return true
	}
	if d.at.IsZero() || at.Before(d.at) {
		d.at = at
	}
	return false
}
