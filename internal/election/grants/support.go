package grants

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Support is the holder's side: who has granted it, and how long that lasts.
type Support struct {
	roster *election.Roster
	// lasts is how long a grant counts, from when the request was sent.
	grantDuration election.Tick
	// old is until when the grants under the list before this one last.
	previousUntil election.Tick
	// sent is, by ID, the moment of the latest request that was granted.
	requestSent []election.Tick
	// settled: a majority of the list before has adopted this one.
	settled bool
	adopted election.IDs
	// until is when the grants no longer suffice.
	until election.Tick
	// floor is the highest term that may have been granted under an older list.
	floor election.Term
}

const never election.Tick = -1 << 62

// Margin is how much earlier than its members the holder counts a lease as run
// out: clocks whose rates differ by less than a sixteenth are safe.
func Margin(lease election.Tick) election.Tick { return lease/16 + 1 }

// Reset starts without any grant; reading is that of the term clock.
func (s *Support) Reset(roster *election.Roster, lease election.Tick, reading election.Term) {
	s.grantDuration = lease - Margin(lease)
	s.setRoster(roster, reading)
}

func (s *Support) setRoster(roster *election.Roster, reading election.Term) {
	s.roster, s.adopted, s.floor = roster, nil, roster.Floor
	s.settled = roster.Previous == nil
	s.Clear()
	s.MarkDeparted(roster.Departed, reading)
}

// MarkDeparted notes members of the list before that no longer exist: they count as
// having adopted this one. What they granted is not above the present reading of
// the term clock.
func (s *Support) MarkDeparted(gone []election.ID, reading election.Term) {
	for _, id := range gone {
		s.RecordAdoption(id, s.roster.Version, reading)
	}
}

// Clear forgets all grants: for a new term.
func (s *Support) Clear() {
	s.previousUntil = never
	top := s.top()
	if cap(s.requestSent) < top {
		s.requestSent = make([]election.Tick, top)
	}
	s.requestSent = s.requestSent[:top]
	for i := range s.requestSent {
		s.requestSent[i] = never
	}
	s.until = never
}

func (s *Support) top() int {
	top := s.roster.Top()
	if s.roster.Previous != nil {
		top = max(top, s.roster.Previous.Top())
	}
	return int(top) + 1
}

// Adopt goes over to another list. What was granted under the old one lasts as
// long as it did; from now on grants count under the new one.
func (s *Support) Adopt(roster *election.Roster, reading election.Term) {
	until := s.until
	s.setRoster(roster, reading)
	s.previousUntil, s.until = until, until
}

// Add notes a grant to the request of the moment sent.
func (s *Support) Add(id election.ID, sent election.Tick) {
	if int(id) < len(s.requestSent) && s.requestSent[id] < sent {
		s.requestSent[id] = sent
		s.recompute()
	}
}

// RecordAdoption notes which list a member says that it has adopted, and up to which
// term it granted before.
func (s *Support) RecordAdoption(id election.ID, version uint32, bar election.Term) {
	if s.settled || version < s.roster.Version || !s.roster.Previous.Has(id) {
		return
	}
	s.adopted.Add(id)
	s.floor = max(s.floor, bar)
	if s.settled = len(s.adopted) >= s.roster.Previous.Majority(); s.settled {
		s.recompute()
	}
}

// Settled reports whether the list before this one has no say any more.
func (s *Support) Settled() bool { return s.settled }

// Floor is the term that a new tenure must exceed. One that lasts already goes
// on whatever it is.
func (s *Support) Floor() election.Term { return s.floor }

// Until is when the grants no longer suffice, on the holder's clock.
func (s *Support) Until() election.Tick { return s.until }

func (s *Support) recompute() {
	until := s.majorityUntil(s.roster)
	if !s.settled {
		until = min(until, s.majorityUntil(s.roster.Previous))
	}
	s.until = max(until, s.previousUntil)
}

// majorityUntil is when fewer than a majority of roster have granted.
func (s *Support) majorityUntil(roster *election.Roster) election.Tick {
	var buffer [16]election.Tick
	sent := buffer[:0]
	for _, m := range roster.Ring() {
		at := s.requestSent[m.ID]
		i := len(sent)
		sent = append(sent, at)
		for ; i > 0 && sent[i-1] < at; i-- {
			sent[i] = sent[i-1]
		}
		sent[i] = at
	}
	if at := sent[roster.Majority()-1]; at > never {
		return at + s.grantDuration
	}
	return never
}

// Clone is an independent copy.
func (s *Support) Clone() Support {
	c := *s
	c.requestSent = slices.Clone(s.requestSent)
	c.adopted = s.adopted.Clone()
	return c
}

// Encode appends the support to b.
func (s *Support) Encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, s.previousUntil, now)
	b = election.AppendFlag(b, s.settled)
	b = election.AppendNumber(b, uint64(s.floor))
	for _, at := range s.requestSent {
		b = election.AppendMoment(b, at+s.grantDuration, now)
	}
	return s.adopted.Encode(b)
}
