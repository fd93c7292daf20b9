package grants

import (
	"cmp"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Support is the holder's side: which members have granted it, and until when the
// grants suffice.
type Support struct {
	roster *election.Roster
	// lease is the configured one.
	lease election.Tick
	// current and previous are the grants of a majority of the list and of the previous one.
	current, previous quorum
	// previousUntil is when the grants under the previous list cease to suffice.
	previousUntil election.Tick
	// grantUntil is, by ID, when the grant of a member ceases to count.
	grantUntil []election.Tick
	// settled: a majority of the previous list has adopted this one.
	settled bool
	// adopted are the members of the previous list that have adopted this one, and
	// bounds, by ID, the highest terms that these may have granted under older lists.
	adopted election.IDs
	bounds  []election.Term
	// until is when the grants cease to suffice.
	until election.Tick
	// floor is the highest term that may have been used under an older list alone.
	floor election.Term
}

// noGrant is when a grant ceases to count that was never given.
const noGrant election.Tick = -1 << 62

// Margin is how much earlier than the members the holder regards a lease as
// expired. Clocks whose rates differ by less than a sixteenth are safe.
func Margin(lease election.Tick) election.Tick { return lease/16 + 1 }

// Reset starts without any grants.
func (s *Support) Reset(roster *election.Roster, lease election.Tick) {
	s.lease = lease
	s.setRoster(roster)
}

// SetLease changes the configured lease. Grants for the previous one still count.
func (s *Support) SetLease(lease election.Tick) { s.lease = lease }

func (s *Support) setRoster(roster *election.Roster) {
	s.roster, s.adopted, s.floor = roster, nil, roster.Floor
	s.settled = roster.Previous == nil
	s.Clear()
	s.bounds = append(s.bounds[:0], make([]election.Term, s.size())...)
	s.AdoptRevision(roster)
}

// AdoptRevision switches to a list of the same version, in which more members of the
// previous list may have departed, and the floor may be higher. Departed members count
// as having adopted the list. The terms that they granted are at most its floor.
func (s *Support) AdoptRevision(roster *election.Roster) {
	s.roster, s.floor = roster, max(s.floor, roster.Floor)
	for _, id := range roster.Departed {
		s.RecordAdoption(id, roster.Version, roster.Floor)
	}
}

// Clear removes all grants, for a new term.
func (s *Support) Clear() {
	s.previousUntil, s.current, s.previous = noGrant, noQuorum, noQuorum
	top := s.size()
	if cap(s.grantUntil) < top {
		s.grantUntil = make([]election.Tick, top)
	}
	s.grantUntil = s.grantUntil[:top]
	for i := range s.grantUntil {
		s.grantUntil[i] = noGrant
	}
	s.until = noGrant
}

func (s *Support) size() int {
	top := s.roster.Top()
	if s.roster.Previous != nil {
		top = max(top, s.roster.Previous.Top())
	}
	return int(top) + 1
}

// Adopt switches to another list. The grants under the old list last as long as
// they would have; new grants count under the new list.
func (s *Support) Adopt(roster *election.Roster) {
	until := s.until
	s.setRoster(roster)
	s.previousUntil, s.until = until, until
}

// Add records a grant for a lease, 0 for the configured one, of the request that was
// sent at the moment sent. An earlier grant that lasts longer still counts: the member
// keeps both promises.
func (s *Support) Add(id election.ID, sent, lease election.Tick) {
	lease = cmp.Or(lease, s.lease)
	until := sent + lease - Margin(lease)
	if int(id) >= len(s.grantUntil) || s.grantUntil[id] >= until {
		return
	}
	before := s.grantUntil[id]
	s.grantUntil[id] = until
	s.current.add(s.roster, id, before, s.grantUntil)
	if s.roster.Previous != nil {
		s.previous.add(s.roster.Previous, id, before, s.grantUntil)
	}
	s.recompute()
}

// RecordAdoption records the list that a member reports as adopted, and a bound on the
// terms that the member granted under older lists. Each report of a member is valid, so
// the lowest one counts.
func (s *Support) RecordAdoption(id election.ID, version uint32, bound election.Term) {
	if s.roster.Previous == nil || version < s.roster.Version || !s.roster.Previous.Has(id) {
		return
	}
	if !s.adopted.Add(id) && bound >= s.bounds[id] {
		return
	}
	s.bounds[id] = bound
	lowest, settled := LowestBound(s.roster.Previous, s.roster.Previous.Majority(), s.reported)
	if !settled {
		return
	}
	s.floor = max(s.roster.Floor, lowest)
	s.settle()
}

// Settle records that the list has settled, as the coordinator reports it. No higher term than bound was used under
// an older list alone. A follower gets no answers from which it could learn this, and the members
// that have left may end together with the coordinator.
func (s *Support) Settle(bound election.Term) {
	if !s.settled {
		s.floor = max(s.floor, bound)
		s.settle()
	}
}

func (s *Support) settle() {
	if !s.settled {
		s.settled = true
		s.recompute()
	}
}

func (s *Support) reported(id election.ID) (election.Term, bool) {
	return s.bounds[id], s.adopted.Has(id)
}

// Settled reports whether a majority of the previous list has adopted this one.
func (s *Support) Settled() bool { return s.settled }

// Floor returns the term that a new tenure must exceed. A tenure that has begun
// may continue in a lower one.
func (s *Support) Floor() election.Term { return s.floor }

// Until returns when the grants cease to suffice, on the holder's clock.
func (s *Support) Until() election.Tick { return s.until }

func (s *Support) recompute() {
	until := s.current.until
	if !s.settled {
		until = min(until, s.previous.until)
	}
	s.until = max(until, s.previousUntil)
}

// Clone returns an independent copy.
func (s *Support) Clone() Support {
	c := *s
	c.grantUntil = slices.Clone(s.grantUntil)
	c.adopted, c.bounds = s.adopted.Clone(), slices.Clone(s.bounds)
	return c
}

// Encode appends the support to b.
func (s *Support) Encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, s.previousUntil, now)
	b = election.AppendFlag(b, s.settled)
	b = election.AppendNumber(b, uint64(s.floor))
	for _, at := range s.grantUntil {
		b = election.AppendMoment(b, at, now)
	}
	for _, bound := range s.bounds {
		b = election.AppendNumber(b, uint64(bound))
	}
	return s.adopted.Encode(b)
}
