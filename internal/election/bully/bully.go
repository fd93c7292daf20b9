// Package bully is the bully election (seeds 000 to 003): who finds the
// coordinator dead asks everyone above; who is answered gives way; who isn't is
// the coordinator, and says so to everyone below.
//
// Assumptions: links are FIFO and deliver within Ttrans, processes handle a
// message within Tproc, failures are crash-stop. Every process knows all
// priorities, and doesn't know who is down.
//
// Messages: n-1 when the highest process starts, n-2 when the second-highest
// finds the coordinator dead, n(n-1) and n-1 announcements when the lowest
// starts while all live.
//
// Not guaranteed: one coordinator. A partition elects one on either side, and a
// recovered process takes the office from a healthy coordinator before that one
// knows it. Package office guards against both.
package bully

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

type phase uint8

const (
	idle phase = iota
	// asking: ELECTION is out, an OK is due within T.
	asking
	// yielding: an OK has come, COORDINATOR is due within T'.
	yielding
)

// Machine is one process of a bully election.
type Machine struct {
	election.Process

	phase    phase
	deadline election.Tick
	// dead is the coordinator that this election thinks dead, or None.
	deadCoordinator election.ID
	// announced is the last term in which the process announced itself.
	announced election.Term
}

// New makes the process that c describes.
func New(c election.Config) (election.Machine, error) {
	p, err := election.NewProcess(c)
	if err != nil {
		return nil, err
	}
	return &Machine{Process: p, deadline: election.Never}, nil
}

// Step takes one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	switch in.Kind {
	case election.TimePassed:
		m.timeout(in.Now, out)
	case election.Receive:
		m.receive(&in.Message, in.Now, out)
	case election.Campaign, election.Recover:
		m.start(in.Peer, in.Term, in.Now, out)
	default:
		m.HandleCommon(&in, out)
		if in.Kind == election.Follow && in.Peer != election.None || !m.Eligible() {
			m.becomeIdle()
		}
	}
}

// start begins an election in a new term.
func (m *Machine) start(dead election.ID, least election.Term, now election.Tick, out *election.Output) {
	if !m.Eligible() || !m.NextTerm(least) {
		m.becomeIdle()
		return
	}
	m.elect(dead, now, out)
}

// elect asks everyone above, or announces where nobody is: where the dead
// coordinator is the only one above, too (seed 004, 5.1.2).
func (m *Machine) elect(dead election.ID, now election.Tick, out *election.Output) {
	m.deadCoordinator = dead
	out.Emit(election.Started, m.Term, dead)
	if m.Highest(dead) {
		m.announce(out)
		return
	}
	m.phase, m.deadline = asking, now+m.Timing.Reply
	for _, above := range slices.Backward(m.Roster.Ranked()[:m.Roster.Rank(m.Self)]) {
		m.Send(out, election.Message{Kind: election.Election, To: above.ID, Term: m.Term, Subject: dead})
	}
}

func (m *Machine) announce(out *election.Output) {
	m.becomeIdle()
	m.announced = m.Term
	m.Recognize(m.Self, m.Term, out)
	for _, below := range m.Roster.Ranked()[m.Roster.Rank(m.Self)+1:] {
		m.Send(out, election.Message{Kind: election.Coordinator, To: below.ID, Term: m.Term, Subject: m.Self})
	}
}

func (m *Machine) becomeIdle() { m.phase, m.deadline = idle, election.Never }

func (m *Machine) timeout(now election.Tick, out *election.Output) {
	if now < m.deadline {
		return
	}
	switch m.phase {
	case asking:
		m.announce(out)
	case yielding:
		m.start(m.deadCoordinator, 0, now, out)
	case idle:
	}
}

func (m *Machine) receive(msg *election.Message, now election.Tick, out *election.Output) {
	if !m.AcceptCurrent(msg, out) {
		return
	}
	if msg.Term > m.Term {
		m.observeTerm(msg, now)
	}
	switch msg.Kind {
	case election.Election:
		m.handleElection(msg, now, out)
	case election.OK:
		if m.phase == asking {
			m.phase, m.deadline = yielding, now+m.Timing.Takeover
		}
	case election.Coordinator:
		m.handleCoordinator(msg, now, out)
	case election.Stale:
	default:
		out.Emit(election.Refused, msg.Term, msg.From)
	}
}

// overtaken takes over a newer term: an election of this process is over. Where
// the message only shows that there is a newer term, the election of that term is
// given the time to end, rather than starting a yet newer one: otherwise two
// could overtake each other for ever.
func (m *Machine) observeTerm(msg *election.Message, now election.Tick) {
	waits := (m.phase != idle || m.Coordinator == m.Self) &&
		msg.Kind != election.Election && msg.Kind != election.Coordinator
	m.Term = msg.Term
	m.becomeIdle()
	if waits {
		m.phase, m.deadline = yielding, now+m.Timing.Takeover
	}
}

// asked answers an ELECTION: OK, and an election of its own, unless it has one
// in this term, has announced itself in it, or knows how it ended.
func (m *Machine) handleElection(msg *election.Message, now election.Tick, out *election.Output) {
	if !m.Eligible() || !m.Roster.Outranks(m.Self, msg.From) {
		return
	}
	m.Send(out, election.Message{Kind: election.OK, To: msg.From, Term: m.Term})
	if m.phase != idle || m.announced == m.Term || m.KnowsCoordinatorOf(m.Term) {
		return
	}
	m.elect(msg.Subject, now, out)
}

// told records the coordinator, and bullies it out if this process outranks it.
func (m *Machine) handleCoordinator(msg *election.Message, now election.Tick, out *election.Output) {
	// Where two announced themselves in one term, the higher one stays.
	if !m.KnowsCoordinatorOf(msg.Term) || !m.Roster.Outranks(m.Coordinator, msg.From) {
		m.becomeIdle()
		m.Recognize(msg.From, msg.Term, out)
	}
	if m.Preempts(msg.From) {
		m.start(election.None, 0, now, out)
	}
}

// Deadline is when the wait ends.
func (m *Machine) Deadline() election.Tick { return m.deadline }

// Status says what the process knows.
func (m *Machine) Status() election.Status {
	return election.Status{Coordinator: m.Coordinator, Term: m.Term, Electing: m.phase != idle}
}

// Rows appends the table that the coordinator implies.
func (m *Machine) Rows(rows []election.Row) []election.Row { return m.CoordinatorRows(rows) }

// Clone is an independent copy.
func (m *Machine) Clone() election.Machine {
	c := *m
	c.Process = m.CloneProcess()
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	b = m.EncodeProcess(b)
	b = append(b, byte(m.phase))
	b = election.AppendMoment(b, m.deadline, now)
	b = election.AppendNumber(b, uint64(m.deadCoordinator))
	return election.AppendNumber(b, uint64(m.announced))
}
