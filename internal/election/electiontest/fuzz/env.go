package fuzz

import "github.com/conclave-dev/conclave/internal/election"

// source hands out bytes, and zeros when there are none left.
type source struct{ data []byte }

func (s *source) empty() bool { return len(s.data) == 0 }

func (s *source) byte() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

func (s *source) below(n int) int { return int(s.byte()) % n }

func (s *source) flag() bool { return s.byte()&1 == 1 }

// world is who there is besides the Machine under test, and what it is told.
type environment struct {
	self   election.ID
	roster *election.Roster
	// everyone has been on a list.
	everyone election.IDs
	now      election.Tick
	// term is a term that was told of lately.
	term election.Term
	// sent are the last messages of the Machine under test.
	sent []election.Message
}

// largest is how many processes there can be; IDs above are strangers.
const largest = 7

// found chooses the member list and the rest of the config.
func (w *environment) found(s *source) election.Config {
	w.self = election.ID(1 + s.below(largest))
	for w.roster == nil || !w.roster.Has(w.self) {
		w.roster = w.list(1, s.byte()|1<<(w.self-1), s)
	}
	c := election.Config{
		Self: w.self, Roster: w.roster, Term: election.Term(s.below(4)),
		Timing: election.Timing{Reply: 10, Takeover: 40, Hop: 5},
	}
	if s.flag() {
		c.Coordinator = w.anybody(s)
	}
	w.term = c.Term
	return c
}

// list is a member list of the processes in mask; the ring turns, and some may
// not stand. A list that would be refused is nil.
func (w *environment) list(version uint32, mask byte, s *source) *election.Roster {
	turn, observers := s.below(largest), s.byte()
	if s.flag() {
		observers = 0
	}
	var ring []election.Member
	for i := range largest {
		at := (i + turn) % largest
		if mask>>at&1 == 0 {
			continue
		}
		m := election.Member{ID: election.ID(at + 1), Priority: election.Priority(at*3%largest + 1)}
		if observers>>at&1 == 1 && observers != 0xff {
			m.Priority = 0
		}
		ring = append(ring, m)
	}
	r, err := election.NewRoster(version, ring)
	if err != nil {
		return nil
	}
	for _, m := range ring {
		w.everyone.Add(m.ID)
	}
	return r
}

// adopted is a later list, which may not have the process itself, or nothing.
func (w *environment) adopted(s *source) *election.Roster {
	next := w.list(w.roster.Version+1, s.byte(), s)
	if next == nil || s.below(8) == 0 {
		return nil
	}
	if s.flag() {
		next = next.Succeed(w.roster, w.number(s))
		if s.flag() {
			next.Departed = []election.ID{w.anybody(s)}
		}
	}
	w.roster = next
	return next
}

// anybody is a process, mostly one that exists.
func (w *environment) anybody(s *source) election.ID {
	switch b := s.byte(); {
	case b < 0xf0:
		return election.ID(1 + int(b)%largest)
	case b < 0xf8:
		return election.None
	case b < 0xfc:
		return election.MaxID + election.ID(b)
	default:
		return 1<<32 - 1
	}
}

func (w *environment) number(s *source) election.Term {
	switch b := s.byte(); {
	case b < 0x40:
		return w.term
	case b < 0x80:
		w.term++
		return w.term
	case b < 0xe0:
		return election.Term(b & 0xf)
	case b < 0xe8:
		return election.MaxTerm
	case b < 0xf0:
		return election.MaxTerm + 1
	case b < 0xf8:
		return election.MaxTerm - election.Term(b&7)
	default:
		return ^election.Term(0) - election.Term(b&7)
	}
}

// input is the next thing that happens. Due is when the Machine waits for.
func (w *environment) input(s *source, due election.Tick) election.Input {
	in := election.Input{Kind: election.Receive}
	if b := s.byte(); b >= 0x80 {
		in.Kind = election.InputKind(b & 0x1f)
	} else if b >= 0x60 && due != election.Never {
		in.Kind, w.now = election.TimePassed, max(w.now, due)
	}
	w.now += election.Tick(s.below(16))
	in.Now = w.now
	switch in.Kind {
	case election.Receive:
		in.Message = w.message(s)
	case election.Undelivered:
		in = w.undelivered(s, in)
	case election.Adopt:
		in.Roster = w.adopted(s)
	case election.TimePassed:
	default:
		in.Peer, in.Life, in.Term = w.anybody(s), uint32(s.below(3)), w.number(s)
		in.Ineligible = in.Kind == election.Suspect && s.flag()
		if in.Kind == election.Follow {
			in.Term = min(in.Term, election.MaxTerm) // whoever runs the Machine says so, no peer
		}
	}
	return in
}

// other is an input that differs in one thing from in.
func (w *environment) other(s *source, in election.Input) election.Input {
	switch s.below(7) {
	case 0:
		in.Peer = w.anybody(s)
	case 1:
		in.Message.Term--
	case 2:
		in.Message.From = w.anybody(s)
	case 3:
		in.Message.Subject = w.anybody(s)
	case 4:
		in.Message.Origin = w.anybody(s)
	case 5:
		in.Message.List = in.Message.List[len(in.Message.List)/2:]
	default:
		in.Term++
	}
	return in
}

// undelivered hands one of the last messages back to its sender.
func (w *environment) undelivered(s *source, in election.Input) election.Input {
	if len(w.sent) == 0 {
		in.Kind = election.TimePassed
		return in
	}
	in.Message = w.sent[s.below(len(w.sent))]
	if s.below(8) == 0 {
		in.Message.To = w.anybody(s)
	}
	return in
}

func (w *environment) message(s *source) election.Message {
	m := election.Message{
		Kind: election.Kind(s.byte()), From: w.anybody(s), To: w.self, Term: w.number(s),
		Subject: w.anybody(s), Origin: w.anybody(s), Hops: uint32(s.below(largest + 2)),
	}
	if m.Kind < 0xe0 {
		m.Kind = 1 + m.Kind%election.Probe
	}
	switch odd := s.byte(); {
	case odd < 0x10:
		m.To, m.From = w.anybody(s), w.anybody(s)
	case odd < 0x18:
		m.Hops = 1<<32 - 1
	}
	for range s.below(3) * s.below(16) {
		m.List = append(m.List, w.anybody(s))
	}
	m.Lamport = uint64(s.byte())
	m.Hold = election.Hold{
		Sent: w.now - election.Tick(s.below(64)), Life: uint32(s.below(3)), Version: w.roster.Version - uint32(s.below(2)),
		HighestGranted: w.number(s), Held: s.flag(), Ready: s.flag(),
		Ineligible: s.flag(), RequesterLife: uint32(s.below(3)),
	}
	return m
}
