package grants

import (
	"cmp"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Support is the holder's side: which members have granted it, and until when the grants suffice.
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
	// adopted are the voters of the previous list that have adopted this one.
	adopted election.IDs
	// until is when the grants cease to suffice.
	until election.Tick
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
	s.roster, s.adopted = roster, nil
	s.settled = roster.Previous == nil
	s.Clear()
	s.AdoptPublication(roster)
}

// AdoptPublication switches to a list of the same version, in which more members of the
// previous list may have departed. These count as having adopted the list.
func (s *Support) AdoptPublication(roster *election.Roster) {
	s.roster = roster
	for _, id := range roster.Departed {
		s.recordAdoption(id)
	}
	if roster.Previous != nil {
		s.previous.compute(roster.Previous, roster.Continues, s.grantUntil)
		s.recompute()
	}
}

// Clear removes all grants, for a new term.
func (s *Support) Clear() {
	s.previousUntil, s.current, s.previous = noGrant, noQuorum, noQuorum
	s.grantUntil = s.grantUntil[:0]
	for range s.size() {
		s.grantUntil = append(s.grantUntil, noGrant)
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

// Add records a grant for a lease, 0 for the configured one, of the request that was sent at the moment sent. An
// earlier grant that lasts longer still counts: the member keeps both promises.
func (s *Support) Add(id election.ID, sent, lease election.Tick) {
	lease = cmp.Or(lease, s.lease)
	until := sent + lease - Margin(lease)
	if int(id) >= len(s.grantUntil) || s.grantUntil[id] >= until {
		return
	}
	before := s.grantUntil[id]
	s.grantUntil[id] = until
	s.current.add(s.roster, s.roster.Has, id, before, s.grantUntil)
	if s.roster.Previous != nil {
		s.previous.add(s.roster.Previous, s.roster.Continues, id, before, s.grantUntil)
	}
	s.recompute()
}

// RecordAdoption records the list that a member reports as adopted. If its state directory was replaced, its
// report tells nothing about what its predecessor has granted.
func (s *Support) RecordAdoption(id election.ID, version uint32) {
	if version >= s.roster.Version && s.roster.Continues(id) {
		s.recordAdoption(id)
	}
}

func (s *Support) recordAdoption(id election.ID) {
	if !s.settled && s.roster.Previous.Has(id) && s.adopted.Add(id) && len(s.adopted) >= s.roster.Previous.Majority() {
		s.Settle()
	}
}

// Settle records that the list has settled, as the coordinator reports it. A follower gets no answers from which
// it could learn this, and the members that have left may end together with the coordinator.
func (s *Support) Settle() {
	if !s.settled {
		s.settled = true
		s.recompute()
	}
}

// Settled reports whether a majority of the previous list has adopted this one.
func (s *Support) Settled() bool { return s.settled }

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
	c.adopted = s.adopted.Clone()
	return c
}

// Encode appends the support to b.
func (s *Support) Encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, s.previousUntil, now)
	b = election.AppendFlag(b, s.settled)
	for _, at := range s.grantUntil {
		b = election.AppendMoment(b, at, now)
	}
	return s.adopted.Encode(b)
}
