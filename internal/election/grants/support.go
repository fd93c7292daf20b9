package grants

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Support is the holder's side: which members have granted it, and until when the
// grants suffice.
type Support struct {
	roster *election.Roster
	// grantDuration is how long a grant counts, from when the request was sent.
	grantDuration election.Tick
	// previousUntil is when the grants under the previous list cease to suffice.
	previousUntil election.Tick
	// requestSent is, by ID, the moment of the latest request that was granted.
	requestSent []election.Tick
	// settled: a majority of the previous list has adopted this one.
	settled bool
	// adopted are the members of the previous list that have adopted this one.
	adopted election.IDs
	// until is when the grants cease to suffice.
	until election.Tick
	// floor is the highest term that may have been granted under an older list.
	floor election.Term
}

// noGrant is the moment of a request that was never granted.
const noGrant election.Tick = -1 << 62

// Margin is how much earlier than the members the holder regards a lease as
// expired. Clocks whose rates differ by less than a sixteenth are safe.
func Margin(lease election.Tick) election.Tick { return lease/16 + 1 }

// Reset starts without any grants. The parameter reading is the present reading
// of the term clock.
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

// MarkDeparted records members of the previous list that no longer exist. They
// count as having adopted this list. The terms that they granted are at most the
// present reading of the term clock.
func (s *Support) MarkDeparted(departed []election.ID, reading election.Term) {
	for _, id := range departed {
		s.RecordAdoption(id, s.roster.Version, reading)
	}
}

// Clear removes all grants, for a new term.
func (s *Support) Clear() {
	s.previousUntil = noGrant
	top := s.size()
	if cap(s.requestSent) < top {
		s.requestSent = make([]election.Tick, top)
	}
	s.requestSent = s.requestSent[:top]
	for i := range s.requestSent {
		s.requestSent[i] = noGrant
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
func (s *Support) Adopt(roster *election.Roster, reading election.Term) {
	until := s.until
	s.setRoster(roster, reading)
	s.previousUntil, s.until = until, until
}

// Add records a grant of the request that was sent at the moment sent.
func (s *Support) Add(id election.ID, sent election.Tick) {
	if int(id) < len(s.requestSent) && s.requestSent[id] < sent {
		s.requestSent[id] = sent
		s.recompute()
	}
}

// RecordAdoption records the list that a member reports as adopted, and the
// highest term that the member granted under older lists.
func (s *Support) RecordAdoption(id election.ID, version uint32, highestGranted election.Term) {
	if s.settled || version < s.roster.Version || !s.roster.Previous.Has(id) {
		return
	}
	s.adopted.Add(id)
	s.floor = max(s.floor, highestGranted)
	if s.settled = len(s.adopted) >= s.roster.Previous.Majority(); s.settled {
		s.recompute()
	}
}

// Settled reports whether a majority of the previous list has adopted this one.
func (s *Support) Settled() bool { return s.settled }

// Floor returns the term that a new tenure must exceed. A tenure that has begun
// may continue in a lower one.
func (s *Support) Floor() election.Term { return s.floor }

// Until returns when the grants cease to suffice, on the holder's clock.
func (s *Support) Until() election.Tick { return s.until }

func (s *Support) recompute() {
	until := s.majorityUntil(s.roster)
	if !s.settled {
		until = min(until, s.majorityUntil(s.roster.Previous))
	}
	s.until = max(until, s.previousUntil)
}

// majorityUntil is when the grants of a majority of roster expire.
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
	if at := sent[roster.Majority()-1]; at > noGrant {
		return at + s.grantDuration
	}
	return noGrant
}

// Clone returns an independent copy.
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
