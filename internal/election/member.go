package election

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ID names a process. It is a small number that whoever runs the Machines gives
// out; it says nothing about rank.
type ID uint32

// None is nobody. No process has this ID.
const None ID = 0

// Priority ranks the processes: the coordinator is the live one with the
// highest. A process of priority 0 keeps its row in the table and never stands.
type Priority uint32

// MaxPriority leaves room for the term in a Token.
const MaxPriority Priority = 1<<priorityBits - 1

// MaxID bounds the tables that are indexed by ID.
const MaxID ID = 1 << 20

// Member is one process as the member list declares it.
type Member struct {
	ID       ID
	Priority Priority
}

// Roster is one version of the member list. It is immutable, and shared by all
// who use it.
type Roster struct {
	// Version numbers the lists, from 1.
	Version uint32
	// Previous is the list that this one replaces, nil for the first. Its own
	// Previous is not kept: two lists at most are ever in force at once.
	Previous *Roster
	// Departed are members of Previous that no longer exist, for a lease or
	// longer: they count as having adopted this version.
	Departed []ID
	// Floor is a term that nobody exceeded under any list before Previous.
	Floor Term

	ring   []Member // in the order of the ring
	ranked []Member // highest priority first, observers last
	rank   []int32  // by ID: place in ranked, or -1
	place  []int32  // by ID: place in ring, or -1
	voters int
}

// NewRoster makes a member list from members in the order of the ring.
func NewRoster(version uint32, ring []Member) (*Roster, error) {
	if len(ring) == 0 {
		return nil, errors.New("a member list needs at least one member")
	}
	r := &Roster{Version: version, ring: slices.Clone(ring), ranked: slices.Clone(ring)}
	slices.SortStableFunc(r.ranked, func(a, b Member) int { return cmp.Compare(b.Priority, a.Priority) })
	top := slices.MaxFunc(ring, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) }).ID
	if top > MaxID {
		return nil, fmt.Errorf("member ID %d is above the limit of %d", top, MaxID)
	}
	r.rank, r.place = absent(top), absent(top)
	for i, m := range r.ring {
		switch {
		case m.ID == None:
			return nil, fmt.Errorf("member %d of the list has no ID", i+1)
		case r.place[m.ID] >= 0:
			return nil, fmt.Errorf("member ID %d is on the list twice", m.ID)
		case m.Priority > MaxPriority:
			return nil, fmt.Errorf("priority %d is above the limit of %d", m.Priority, MaxPriority)
		}
		r.place[m.ID] = int32(i)
	}
	for i, m := range r.ranked {
		if i > 0 && m.Priority > 0 && m.Priority == r.ranked[i-1].Priority {
			return nil, fmt.Errorf("members %d and %d have the same priority %d", r.ranked[i-1].ID, m.ID, m.Priority)
		}
		r.rank[m.ID] = int32(i)
		if m.Priority > 0 {
			r.voters++
		}
	}
	if r.voters == 0 {
		return nil, errors.New("every member has priority 0: nobody could ever be elected")
	}
	return r, nil
}

// Succeed returns a copy of r that replaces previous. Floor is the reading of the
// publisher's TermClock, when previous has settled; departed are the members of
// previous that are gone for good.
func (r *Roster) Succeed(previous *Roster, floor Term, departed ...ID) *Roster {
	next := *r
	before := *previous
	before.Previous, before.Departed = nil, nil
	next.Previous, next.Floor, next.Departed = &before, floor, slices.Clone(departed)
	return &next
}

func absent(top ID) []int32 {
	s := make([]int32, top+1)
	for i := range s {
		s[i] = -1
	}
	return s
}

// Len is the number of members.
func (r *Roster) Len() int { return len(r.ring) }

// Top is the highest ID among the members.
func (r *Roster) Top() ID { return ID(len(r.rank) - 1) }

// Ranked are the members, highest priority first. Callers must not change it.
func (r *Roster) Ranked() []Member { return r.ranked }

// Ring are the members in the order of the ring. Callers must not change it.
func (r *Roster) Ring() []Member { return r.ring }

// Has reports whether id is a member.
func (r *Roster) Has(id ID) bool { return int(id) < len(r.rank) && r.rank[id] >= 0 }

// Rank is the place of id among the members, 0 for the highest priority, and
// Len for a stranger.
func (r *Roster) Rank(id ID) int {
	if !r.Has(id) {
		return len(r.ring)
	}
	return int(r.rank[id])
}

// Priority is the priority of id, and 0 for a stranger.
func (r *Roster) Priority(id ID) Priority {
	if !r.Has(id) {
		return 0
	}
	return r.ranked[r.rank[id]].Priority
}

// Outranks reports whether a has a higher priority than b. Everyone outranks a
// stranger, None included.
func (r *Roster) Outranks(a, b ID) bool { return r.Rank(a) < r.Rank(b) }

// HighestOf is the one of id and others that outranks the rest.
func (r *Roster) HighestOf(id ID, others []ID) ID {
	for _, other := range others {
		if r.Outranks(other, id) {
			id = other
		}
	}
	return id
}

// After is the process behind id on the ring, steps places on.
func (r *Roster) After(id ID, steps int) ID {
	if !r.Has(id) {
		return None
	}
	return r.ring[(int(r.place[id])+steps)%len(r.ring)].ID
}

// Majority is the smallest number of members of which any two groups meet. All
// members count, those of priority 0 too: they never stand, but they grant.
func (r *Roster) Majority() int { return len(r.ring)/2 + 1 }
