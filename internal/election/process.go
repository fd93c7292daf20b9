package election

import (
	"errors"
	"fmt"
)

// Config is the initial configuration of a Machine.
type Config struct {
	Self   ID
	Roster *Roster
	// Term and Coordinator are what the process believes at the start. Term is 0 if it knows nothing.
	Term        Term
	Coordinator ID
	Timing      Timing
	// NoPreemption: the process doesn't bully a coordinator of lower rank out. The machine that wraps the election hands
	// the office over instead. A recovery that finds no coordinator ends, because that machine determines when an election
	// starts.
	NoPreemption bool
}

// Timing holds the timeouts of an election, in ticks.
type Timing struct {
	// Reply is T: a reply is due within T = 2*Ttrans + Tproc.
	Reply Tick
	// Takeover is T': how long a process that has received an OK waits for the announcement of the coordinator. It must be
	// longer than T, because the takeover itself may have to wait T.
	Takeover Tick
	// Hop is the longest time for one place on the ring: Ttrans + Tproc,
	// including the wait for a successor that doesn't respond.
	Hop Tick
}

// Validate returns an error if the timing is invalid.
func (t Timing) Validate() error {
	switch {
	case t.Reply <= 0 || t.Hop <= 0:
		return fmt.Errorf("the waits for a reply (%d ticks) and for a hop (%d) must be positive", t.Reply, t.Hop)
	case t.Takeover <= t.Reply:
		return fmt.Errorf("the wait for a takeover (%d ticks) must be longer than for a reply (%d)", t.Takeover, t.Reply)
	}
	return nil
}

// DefaultTiming derives the timeouts from the longest delays of a message (trans) and of its handling (proc).
func DefaultTiming(trans, proc Tick) Timing {
	reply := 2*trans + proc + 1
	return Timing{Reply: reply, Takeover: 3 * reply, Hop: reply}
}

// Validate returns an error if the configuration is invalid.
func (c Config) Validate() error {
	switch {
	case c.Roster == nil:
		return errors.New("no member list")
	case !c.Roster.Has(c.Self):
		return fmt.Errorf("process %d is not on the member list", c.Self)
	case c.Coordinator != None && !c.Roster.Has(c.Coordinator):
		return fmt.Errorf("the coordinator %d is not on the member list", c.Coordinator)
	case c.Term > MaxTerm:
		return fmt.Errorf("term %d is above the limit of %d", c.Term, MaxTerm)
	}
	return c.Timing.Validate()
}

// Process is the state that a process has in every algorithm. Machines embed it.
type Process struct {
	Self   ID
	Roster *Roster
	Timing Timing
	// Term is the highest term that the process has seen.
	Term Term
	// Coordinator is the coordinator as far as the process knows, elected in CoordinatorTerm.
	Coordinator     ID
	CoordinatorTerm Term
	// NoPreemption: see Config.
	NoPreemption bool
	// Ineligible: the process must not be elected, for example because its application is dead.
	Ineligible bool
	// Recovering: the process started its election because it recovers. With
	// NoPreemption, an election that has no outcome isn't started again.
	Recovering bool
	// Suspects are the peers that a detector believes dead. Without a detector there are none.
	Suspects IDs

	lamport uint64
}

// NewProcess returns the process that a valid configuration describes.
func NewProcess(c Config) (Process, error) {
	if err := c.Validate(); err != nil {
		return Process{}, err
	}
	p := Process{
		Self: c.Self, Roster: c.Roster, Timing: c.Timing, Term: c.Term, Coordinator: c.Coordinator,
		NoPreemption: c.NoPreemption,
	}
	if c.Coordinator != None {
		p.CoordinatorTerm = c.Term
	}
	return p, nil
}

// Priority returns the process's own priority.
func (p *Process) Priority() Priority { return p.Roster.Priority(p.Self) }

// Eligible reports whether the process may be elected.
func (p *Process) Eligible() bool { return !p.Ineligible && p.Priority() > 0 }

// Preempts reports whether the process bullies the coordinator id out.
func (p *Process) Preempts(id ID) bool {
	return !p.NoPreemption && p.Eligible() && p.Roster.Outranks(p.Self, id)
}

// Highest reports whether all processes above this one, except for dead, are suspected. The parameter dead is the
// coordinator that is believed dead, or None.
func (p *Process) Highest(dead ID) bool {
	for _, m := range p.Roster.ranked[:p.Roster.Rank(p.Self)] {
		if m.ID != dead && !p.Suspects.Has(m.ID) {
			return false
		}
	}
	return true
}

// NextTerm advances to a term that the process hasn't seen, at least to least. It reports false if no term is left.
func (p *Process) NextTerm(least Term) bool {
	next := max(p.Term+1, least)
	if next > MaxTerm {
		return false
	}
	p.Term = next
	return true
}

// Send stamps a message and appends it to out.
func (p *Process) Send(out *Output, m Message) {
	p.lamport++
	m.From, m.Lamport = p.Self, p.lamport
	out.Send = append(out.Send, m)
}

// Accept reports whether a message can come from a peer, and if so, advances the logical clock.
func (p *Process) Accept(m *Message, out *Output) bool {
	if m.To != p.Self || m.From == p.Self && m.Origin != p.Self || !p.Roster.Has(m.From) || m.Term > MaxTerm {
		out.Emit(Refused, m.Term, m.From)
		return false
	}
	p.lamport = max(p.lamport, m.Lamport) + 1
	return true
}

// AcceptCurrent accepts a message and reports whether the Machine has to act on it. A message of an older term is
// answered with the newer term, and otherwise ignored.
func (p *Process) AcceptCurrent(m *Message, out *Output) bool {
	if !p.Accept(m, out) {
		return false
	}
	if m.Term >= p.Term {
		return true
	}
	out.Emit(Outdated, m.Term, m.From)
	if m.Kind != Stale {
		to := m.From
		if p.Roster.Has(m.Origin) && m.Origin != p.Self {
			to = m.Origin
		}
		p.Send(out, Message{Kind: Stale, To: to, Term: p.Term})
	}
	return false
}

// Recognize makes id the coordinator in term.
func (p *Process) Recognize(id ID, term Term, out *Output) {
	p.Term = max(p.Term, term)
	if p.Coordinator == id && p.CoordinatorTerm == term {
		return
	}
	p.Coordinator, p.CoordinatorTerm = id, term
	if id == p.Self {
		out.Emit(Elected, term, id)
	} else if id != None {
		out.Emit(Recognized, term, id)
	}
}

// KnowsCoordinatorOf reports whether the process knows the coordinator of term, that is, whether that election is over.
func (p *Process) KnowsCoordinatorOf(term Term) bool {
	return p.Coordinator != None && p.CoordinatorTerm == term
}

// HandleCommon handles the inputs that every algorithm handles in the same way.
func (p *Process) HandleCommon(in *Input, out *Output) {
	switch in.Kind {
	case Suspect:
		if in.Peer != p.Self && p.Roster.Has(in.Peer) && p.Suspects.Add(in.Peer) {
			out.Emit(MarkedCrashed, p.Term, in.Peer)
		}
	case Restore:
		if p.Suspects.Remove(in.Peer) {
			out.Emit(MarkedNormal, p.Term, in.Peer)
		}
	case Follow:
		if in.Peer != None || p.CoordinatorTerm <= in.Term {
			p.Recognize(in.Peer, in.Term, out)
		}
		p.Recovering = p.Recovering && in.Peer == None
	case BecomeIneligible:
		p.Ineligible = true
	case BecomeEligible:
		p.Ineligible = false
	case Adopt:
		p.adopt(in.Roster)
	case Retime:
		if in.Timing == nil || in.Timing.Validate() != nil {
			out.Emit(Refused, p.Term, None)
			return
		}
		p.Timing = *in.Timing
	default:
	}
}

func (p *Process) adopt(roster *Roster) {
	if roster == nil {
		return
	}
	p.Roster = roster
	if !roster.Has(p.Coordinator) {
		p.Coordinator = None
	}
	var retained IDs
	for _, id := range p.Suspects {
		if roster.Has(id) {
			retained = append(retained, id)
		}
	}
	p.Suspects = retained
}

// CoordinatorRows appends the table that follows from the coordinator and the suspects.
func (p *Process) CoordinatorRows(rows []Row) []Row {
	t := NewStatusTable(p.Roster, p.Coordinator)
	for _, id := range p.Suspects {
		if id != p.Coordinator {
			t.Mark(id, true)
		}
	}
	return t.Rows(rows)
}

// CloneProcess returns an independent copy.
func (p *Process) CloneProcess() Process {
	c := *p
	c.Suspects = p.Suspects.Clone()
	return c
}

// EncodeProcess appends the process to an encoded state. It omits the logical clock, which doesn't affect the behavior.
func (p *Process) EncodeProcess(b []byte) []byte {
	b = AppendNumber(b, uint64(p.Term))
	b = AppendNumber(b, uint64(p.Coordinator))
	b = AppendNumber(b, uint64(p.CoordinatorTerm))
	b = AppendNumber(b, uint64(p.Roster.Version))
	b = AppendFlag(b, p.NoPreemption)
	b = AppendFlag(b, p.Ineligible)
	b = AppendFlag(b, p.Recovering)
	return p.Suspects.Encode(b)
}
