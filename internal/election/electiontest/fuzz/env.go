package fuzz

import "github.com/conclave-dev/conclave/internal/election"

// source returns bytes, and zeros when none are left.
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

// environment is the state from which the inputs of the Machine under test are drawn.
type environment struct {
	self   election.ID
	roster *election.Roster
	// members have been on a list.
	members election.IDs
	now     election.Tick
	// term is a recent term.
	term election.Term
	// sent are the last messages of the Machine under test.
	sent []election.Message
}

// maxProcesses is the maximum number of processes. Processes with a higher ID don't exist.
const maxProcesses = 7

// newConfig draws the member list and the other parts of the configuration.
func (e *environment) newConfig(s *source) election.Config {
	e.self = election.ID(1 + s.below(maxProcesses))
	for e.roster == nil || !e.roster.Has(e.self) {
		e.roster = e.newRoster(1, s.byte()|1<<(e.self-1), s)
	}
	c := election.Config{
		Self: e.self, Roster: e.roster, Term: election.FirstTerm(1) + election.Term(s.below(4)),
		Timing: election.Timing{Reply: 10, Takeover: 40, Hop: 5},
	}
	if s.flag() {
		c.Coordinator = e.anyID(s)
	}
	e.term = c.Term
	return c
}

// newRoster returns a member list of the processes in mask, in a drawn order of the ring. Some members may be
// observers, and some state directories may have been replaced. It returns nil if the list is invalid.
func (e *environment) newRoster(version uint32, mask byte, s *source) *election.Roster {
	turn, observers := s.below(maxProcesses), s.byte()
	if s.flag() {
		observers = 0
	}
	identities := s.byte()
	var ring []election.Member
	for i := range maxProcesses {
		at := (i + turn) % maxProcesses
		if mask>>at&1 == 0 {
			continue
		}
		m := election.Member{ID: election.ID(at + 1), Priority: election.Priority(at*3%maxProcesses + 1)}
		if observers>>at&1 == 1 && observers != 0xff {
			m.Priority = 0
		}
		if identities >= 0xc0 {
			m.Identity = election.Identity(identities >> at & 1)
		}
		ring = append(ring, m)
	}
	r, err := election.NewRoster(version, ring)
	if err != nil {
		return nil
	}
	for _, m := range ring {
		e.members.Add(m.ID)
	}
	return r
}

// nextRoster returns a later list, which may not contain the process itself, a later publication of the present one, or
// nil.
func (e *environment) nextRoster(s *source) *election.Roster {
	if before := e.roster.Previous; before != nil && s.below(4) == 0 {
		e.roster = e.roster.Succeed(before, append(e.roster.Departed, e.anyID(s))...)
		return e.roster
	}
	next := e.newRoster(e.roster.Version+1, s.byte(), s)
	if next == nil || s.below(8) == 0 {
		return nil
	}
	if s.flag() {
		next = next.Succeed(e.roster)
		if s.flag() {
			next.Departed = []election.ID{e.anyID(s)}
		}
	}
	e.roster = next
	return next
}

// anyID returns a process that mostly exists.
func (e *environment) anyID(s *source) election.ID {
	switch b := s.byte(); {
	case b < 0xf0:
		return election.ID(1 + int(b)%maxProcesses)
	case b < 0xf8:
		return election.None
	case b < 0xfc:
		return election.MaxID + election.ID(b)
	default:
		return 1<<32 - 1
	}
}

func (e *environment) anyTerm(s *source) election.Term {
	switch b := s.byte(); {
	case b < 0x40:
		return e.term
	case b < 0x80:
		e.term++
		return e.term
	case b < 0xd0:
		return election.FirstTerm(e.roster.Version) + election.Term(b&0x1f)
	case b < 0xe0:
		return election.LastTerm(e.roster.Version) - 7 + election.Term(b&0xf) // the next list begins in between
	case b < 0xe4:
		return election.Term(b & 3)
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

// input returns the next input. The parameter due is the Machine's deadline.
func (e *environment) input(s *source, due election.Tick) election.Input {
	in := election.Input{Kind: election.Receive}
	if b := s.byte(); b >= 0x80 {
		in.Kind = election.InputKind(b & 0x1f)
	} else if b >= 0x60 && due != election.Never {
		in.Kind, e.now = election.TimePassed, max(e.now, due)
	}
	e.now += election.Tick(s.below(16))
	in.Now = e.now
	switch in.Kind {
	case election.Receive:
		in.Message = e.message(s)
	case election.Undelivered:
		in = e.undelivered(s, in)
	case election.Adopt:
		in.Roster = e.nextRoster(s)
	case election.TimePassed:
	default:
		in.Peer, in.Life, in.Term = e.anyID(s), uint32(s.below(3)), e.anyTerm(s)
		in.Ineligible = in.Kind == election.Suspect && s.flag()
		if in.Kind == election.Follow {
			in.Term = min(in.Term, election.MaxTerm) // the input comes from the caller of the Machine, not from a peer
		}
	}
	return in
}

// mutate returns an input that differs from in in one field.
func (e *environment) mutate(s *source, in election.Input) election.Input {
	switch s.below(7) {
	case 0:
		in.Peer = e.anyID(s)
	case 1:
		in.Message.Term--
	case 2:
		in.Message.From = e.anyID(s)
	case 3:
		in.Message.Subject = e.anyID(s)
	case 4:
		in.Message.Origin = e.anyID(s)
	case 5:
		in.Message.List = in.Message.List[len(in.Message.List)/2:]
	default:
		in.Term++
	}
	return in
}

// undelivered returns one of the last messages to its sender.
func (e *environment) undelivered(s *source, in election.Input) election.Input {
	if len(e.sent) == 0 {
		in.Kind = election.TimePassed
		return in
	}
	in.Message = e.sent[s.below(len(e.sent))]
	if s.below(8) == 0 {
		in.Message.To = e.anyID(s)
	}
	return in
}

func (e *environment) message(s *source) election.Message {
	m := election.Message{
		Kind: election.Kind(s.byte()), From: e.anyID(s), To: e.self, Term: e.anyTerm(s),
		Subject: e.anyID(s), Origin: e.anyID(s), Hops: uint32(s.below(maxProcesses + 2)),
	}
	if m.Kind < 0xe0 {
		m.Kind = 1 + m.Kind%election.Probe
	}
	switch odd := s.byte(); {
	case odd < 0x10:
		m.To, m.From = e.anyID(s), e.anyID(s)
	case odd < 0x18:
		m.Hops = 1<<32 - 1
	}
	for range s.below(3) * s.below(16) {
		m.List = append(m.List, e.anyID(s))
	}
	m.Lamport = uint64(s.byte())
	m.Hold = election.Hold{
		Sent: e.now - election.Tick(s.below(64)), Life: uint32(s.below(3)), Version: e.roster.Version - uint32(s.below(2)),
		HighestGranted: e.anyTerm(s), ElectionTerm: e.anyTerm(s), Held: s.flag(), Ready: s.flag(),
		Ineligible: s.flag(), RequesterLife: uint32(s.below(3)),
		Settled: s.flag(), Abstains: s.below(8) == 0, Flaps: s.below(4) == 0,
	}
	return m
}
