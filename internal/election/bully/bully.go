// Package bully is the bully election ([Textbook], [SKR5302], [DistributedOS], [UNIMORE]). A process that finds the
// coordinator dead sends ELECTION to all processes above it. If one of them answers, the process yields. If none does,
// it becomes coordinator and announces that to all processes below it.
//
// Assumptions: links are FIFO and deliver within Ttrans. Processes handle a message within Tproc and fail by stopping.
// Every process knows all priorities, but not which processes are down.
//
// Messages: n-1 when the highest process starts; n-2 when the second-highest finds the coordinator dead; n(n-1) plus
// n-1 announcements when the lowest starts and all processes are alive.
//
// Not guaranteed: that there is one coordinator. A partition elects one on each side, and a recovered process takes
// over from a healthy coordinator before that one knows it. Package office prevents both.
package bully

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

type phase uint8

const (
	idle phase = iota
	// asking: ELECTION has been sent, an OK is due within T.
	asking
	// yielding: an OK has arrived, COORDINATOR is due within T'.
	yielding
)

// Machine is one process of a bully election.
type Machine struct {
	election.Process

	phase    phase
	deadline election.Tick
	// deadCoordinator is the coordinator that is believed dead in this election, or None.
	deadCoordinator election.ID
	// announced is the last term in which the process announced itself.
	announced election.Term
}

// New returns the process that c describes.
func New(c election.Config) (election.Machine, error) {
	p, err := election.NewProcess(c)
	if err != nil {
		return nil, err
	}
	return &Machine{Process: p, deadline: election.Never}, nil
}

// Step handles one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	switch in.Kind {
	case election.TimePassed:
		m.timeout(in.Now, out)
	case election.Receive:
		m.receive(&in.Message, in.Now, out)
	case election.Campaign, election.Recover:
		m.Recovering = m.NoPreemption && in.Kind == election.Recover
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

// elect sends ELECTION to all processes above this one. If there is none, or only the dead coordinator, it announces
// this process ([ImprovedBully], 5.1.2).
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
		if m.Recovering {
			m.becomeIdle()
			return
		}
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

// observeTerm adopts the newer term of a message. That ends an election of this process.
//
// A message that only shows that there is a newer term gives the process a reason to wait for the outcome of that
// term's election. It must not start an election in a yet newer term at once. For example, consider two processes that
// each start an election. If each restarted as soon as it saw the other's term, the two could overtake each other
// forever.
func (m *Machine) observeTerm(msg *election.Message, now election.Tick) {
	waits := (m.phase != idle || m.Coordinator == m.Self) &&
		msg.Kind != election.Election && msg.Kind != election.Coordinator
	m.Term = msg.Term
	m.becomeIdle()
	if waits {
		m.phase, m.deadline = yielding, now+m.Timing.Takeover
	}
}

// handleElection answers an ELECTION with OK and starts an election of this process. It doesn't start one if this
// process has an election in this term, has announced itself in it, or knows its outcome.
func (m *Machine) handleElection(msg *election.Message, now election.Tick, out *election.Output) {
	if !m.Eligible() || !m.Roster.Outranks(m.Self, msg.From) {
		return
	}
	m.Send(out, election.Message{Kind: election.OK, To: msg.From, Term: m.Term})
	if m.phase != idle || m.announced == m.Term || m.KnowsCoordinatorOf(m.Term) {
		return
	}
	m.Recovering = false
	m.elect(msg.Subject, now, out)
}

// handleCoordinator records the coordinator, and bullies it out if this process outranks it.
func (m *Machine) handleCoordinator(msg *election.Message, now election.Tick, out *election.Output) {
	// If two processes announced themselves in one term, the higher one wins.
	if !m.KnowsCoordinatorOf(msg.Term) || !m.Roster.Outranks(m.Coordinator, msg.From) {
		m.becomeIdle()
		m.Recognize(msg.From, msg.Term, out)
	}
	if m.Preempts(msg.From) {
		m.start(election.None, 0, now, out)
	}
}

// Deadline returns when the wait ends.
func (m *Machine) Deadline() election.Tick { return m.deadline }

// Status returns what the process knows.
func (m *Machine) Status() election.Status {
	return election.Status{Coordinator: m.Coordinator, Term: m.Term, Electing: m.phase != idle}
}

// Rows appends the table that follows from the coordinator.
func (m *Machine) Rows(rows []election.Row) []election.Row { return m.CoordinatorRows(rows) }

// Clone returns an independent copy.
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
