package election

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

// ID identifies a process. It is a small number that the caller assigns. It doesn't imply a rank.
type ID uint32

// None identifies no process.
const None ID = 0

// Priority ranks the processes: the coordinator is the live process with the highest priority. A process of priority 0
// is an observer: it has a row in the table and is never elected.
type Priority uint32

// MaxPriority is the highest priority.
const MaxPriority Priority = 1<<14 - 1

// MaxID limits the size of tables that are indexed by ID.
const MaxID ID = 1 << 20

// Identity is the identity of a state directory: a random number. A process that starts with another
// directory doesn't know what it has granted before, so it is another voter.
type Identity uint64

// Member is one process as the member list declares it.
type Member struct {
	ID       ID
	Priority Priority
	// Identity is that of the state directory with which the process votes under this list. 0 is unknown:
	// a later publication of the list may have it.
	Identity Identity
}

// Roster is one version of the member list. It is immutable and can be shared.
type Roster struct {
	// Version is the number of the list, from 1.
	Version uint32
	// Previous is the list that this one replaces, nil for the first. Its own
	// Previous is nil: at most two lists are in force at once.
	Previous *Roster
	// Departed are members of Previous that have not existed for at least a
	// lease. They count as having adopted this version.
	Departed []ID

	ring   []Member // in the order of the ring
	ranked []Member // highest priority first, observers last
	rank   []int32  // by ID: index in ranked, or -1
	place  []int32  // by ID: index in ring, or -1
	voters int
}

// NewRoster returns a member list of the members in ring, which are in the order of the ring.
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
		case version > MaxVersion:
			return nil, fmt.Errorf("version %d is above the limit of %d", version, MaxVersion)
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
		return nil, errors.New("every member has priority 0: no process could ever be elected")
	}
	return r, nil
}

// Succeed returns a copy of r that replaces previous. The parameter departed are the
// members of previous that no longer exist.
func (r *Roster) Succeed(previous *Roster, departed ...ID) *Roster {
	next := *r
	before := *previous
	before.Previous, before.Departed = nil, nil
	next.Previous, next.Departed = &before, slices.Clone(departed)
	return &next
}

// RosterOf returns the roster of a list, with that of the list before. The parameter id returns the ID of a member.
func RosterOf(list *memberlist.List, id func(name string) ID) (*Roster, error) {
	roster, err := NewRoster(list.Version, ringOf(list.Members, id))
	if err != nil || list.Previous == nil {
		return roster, err
	}
	previous, err := NewRoster(list.Previous.Version, ringOf(list.Previous.Members, id))
	if err != nil {
		return nil, err
	}
	var departed []ID
	for _, name := range list.NotNeeded() {
		departed = append(departed, id(name))
	}
	return roster.Succeed(previous, departed...), nil
}

func ringOf(members []memberlist.Member, id func(name string) ID) []Member {
	ring := make([]Member, len(members))
	for i, m := range members {
		identity, _ := memberlist.ParseIdentity(m.Identity) // Whoever reads a list checks it.
		ring[i] = Member{ID: id(m.Name), Priority: Priority(m.Priority), Identity: Identity(identity)}
	}
	return ring
}

func absent(top ID) []int32 {
	s := make([]int32, top+1)
	for i := range s {
		s[i] = -1
	}
	return s
}

// Len returns the number of members.
func (r *Roster) Len() int { return len(r.ring) }

// Top returns the highest ID of a member.
func (r *Roster) Top() ID { return ID(len(r.rank) - 1) }

// Ranked returns the members, highest priority first. Callers must not change the result.
func (r *Roster) Ranked() []Member { return r.ranked }

// Ring returns the members in the order of the ring. Callers must not change the result.
func (r *Roster) Ring() []Member { return r.ring }

// Has reports whether id is a member.
func (r *Roster) Has(id ID) bool { return int(id) < len(r.rank) && r.rank[id] >= 0 }

// Rank returns the index of id in Ranked: 0 for the highest priority, and Len if id isn't a member.
func (r *Roster) Rank(id ID) int {
	if !r.Has(id) {
		return len(r.ring)
	}
	return int(r.rank[id])
}

// Priority returns the priority of id, and 0 if id isn't a member.
func (r *Roster) Priority(id ID) Priority {
	if !r.Has(id) {
		return 0
	}
	return r.ranked[r.rank[id]].Priority
}

// Outranks reports whether a has a higher priority than b. Each member outranks
// each process that isn't a member, including None.
func (r *Roster) Outranks(a, b ID) bool { return r.Rank(a) < r.Rank(b) }

// HighestOf returns the highest-ranked process of id and others.
func (r *Roster) HighestOf(id ID, others []ID) ID {
	for _, other := range others {
		if r.Outranks(other, id) {
			id = other
		}
	}
	return id
}

// Identity returns the identity of id, 0 if it is unknown.
func (r *Roster) Identity(id ID) Identity {
	if !r.Has(id) {
		return 0
	}
	return r.ring[r.place[id]].Identity
}

// Publication orders the publications of a version: each has more departed members or identities than the one before.
func (r *Roster) Publication() int {
	n := len(r.Departed)
	for _, m := range r.ring {
		if m.Identity != 0 {
			n++
		}
	}
	return n
}

// Place returns the index of id in Ring, and -1 if id isn't a member.
func (r *Roster) Place(id ID) int {
	if !r.Has(id) {
		return -1
	}
	return int(r.place[id])
}

// Continues reports whether id is the same voter under the previous list, which has not been replaced by one with
// another state directory. If the previous list doesn't know the directory, nobody has voted with it.
func (r *Roster) Continues(id ID) bool {
	if r.Previous == nil || !r.Previous.Has(id) {
		return false
	}
	before := r.Previous.Identity(id)
	return before == 0 || before == r.Identity(id) || !r.Has(id)
}

// After returns the process that follows id on the ring at a distance of steps.
func (r *Roster) After(id ID, steps int) ID {
	if !r.Has(id) {
		return None
	}
	return r.ring[(int(r.place[id])+steps)%len(r.ring)].ID
}

// Majority returns the smallest number of members such that any two groups of that size have a member in common.
// Observers count too: they are never elected, but they grant.
func (r *Roster) Majority() int { return len(r.ring)/2 + 1 }
