package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/report"
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
	// revision is the highest that an agent has told of: who leaves an earlier group
	// of the name takes nothing that isn't newer, but tells of it no more.
	revision int64
	// events are those yet to be written of changes that are in the status already.
	events []report.Event
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
}

// recall is the memory of a group, new if it is another one of the same name.
func (m *memories) recall(group types.NamespacedName, uid types.UID) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[types.NamespacedName]*memory{}
	}
	found := m.of[group]
	if found == nil || found.uid != uid {
		found = &memory{uid: uid}
		m.of[group] = found
	}
	return found
}

func (m *memories) forget(group types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, group)
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
