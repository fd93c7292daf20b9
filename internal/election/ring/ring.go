// Package ring has the elections on a unidirectional ring: RingAllIDs and RingChampion ([Textbook]), RingActiveList
// ([DistributedOS]), and RingSkip ([SKR5302] and [UNIMORE]). A message goes only to the successor, and round the ring
// only once. Each election has a file with its rules, by the numbers in docs/algorithms. This file has what the
// elections share.
//
// Assumptions: links are FIFO. A process that doesn't respond is detected in time, and skipped. The control part of a
// failed process still forwards messages (the process is ineligible).
//
// Not guaranteed: that there is one coordinator, and that an election has an outcome if processes fail during it. A
// process that waits without success starts again.
package ring

import "github.com/conclave-dev/conclave/internal/election"

// rules are what differs from one election to another. They have no state.
type rules interface {
	// start sends the first message of an election that this process starts.
	start(m *machine, out *election.Output)
	// receive handles a message of the current term.
	receive(m *machine, msg election.Message, now election.Tick, out *election.Output)
	// handleRecovery handles an input of a recovery by messages of its own, and reports whether it did. Without such
	// messages, a recovered process starts an election.
	handleRecovery(m *machine, in election.Input, out *election.Output) bool
}

// machine is one process of a ring.
type machine struct {
	election.Process
	rules rules

	// deadline is when the election that this process started or joined must be over.
	deadline election.Tick
	// ownTerm is the term in which the process last put its own message on the ring.
	ownTerm election.Term
	// deadCoordinator is the coordinator that is believed dead in this process's election.
	deadCoordinator election.ID

	// collected are the identifiers seen in the election of ownTerm. Only RingAllIDs and RingActiveList collect them.
	collected election.IDs
	// initiator: in RingAllIDs, this process started the election of ownTerm.
	initiator bool
	// inquiring: in RingActiveList, this process recovers, and a REPLY is due
	// until the deadline. Then minTerm is the lowest term to use.
	inquiring bool
	minTerm   election.Term
}

func newMachine(c election.Config, r rules) (election.Machine, error) {
	p, err := election.NewProcess(c)
	if err != nil {
		return nil, err
	}
	return &machine{Process: p, rules: r, deadline: election.Never}, nil
}

// Step handles one input.
func (m *machine) Step(in election.Input, out *election.Output) {
	if m.rules.handleRecovery(m, in, out) {
		return
	}
	switch in.Kind {
	case election.TimePassed:
		if in.Now >= m.deadline {
			m.restart(in.Now, out)
		}
	case election.Receive:
		m.receive(&in.Message, in.Now, out)
	case election.Undelivered:
		m.skip(in.Message, out)
	case election.Campaign, election.Recover:
		m.start(&in, out)
	default:
		m.handleOther(&in, out)
	}
}

// start starts an election of this process in a new term. It doesn't if the process isn't eligible, no term is left, or
// the election belongs to a recovery that must end without an outcome.
func (m *machine) start(in *election.Input, out *election.Output) {
	over := m.Recovering && in.Kind == election.TimePassed
	m.Recovering, m.inquiring = m.NoPreemption && in.Kind == election.Recover, false
	if over || !m.Eligible() || !m.NextTerm(max(in.Term, m.minTerm)) {
		m.deadline, m.Recovering = election.Never, false
		return
	}
	m.ownTerm, m.deadCoordinator, m.deadline = m.Term, in.Peer, in.Now+m.round()
	out.Emit(election.Started, m.Term, in.Peer)
	m.rules.start(m, out)
}

// restart starts the election again.
func (m *machine) restart(now election.Tick, out *election.Output) {
	m.start(&election.Input{Kind: election.TimePassed, Peer: m.deadCoordinator, Now: now}, out)
}

// round returns how long an election may take: the longest one goes round three times, with each place skipped once.
func (m *machine) round() election.Tick { return 3 * election.Tick(m.Roster.Len()+1) * m.Timing.Hop }

// waitForOutcome waits for the outcome of an election that another process started.
func (m *machine) waitForOutcome(dead election.ID, now election.Tick) {
	if m.deadline == election.Never && m.Eligible() {
		m.deadCoordinator, m.deadline = dead, now+2*m.round()
	}
}

func (m *machine) receive(msg *election.Message, now election.Tick, out *election.Output) {
	if !m.AcceptCurrent(msg, out) {
		return
	}
	m.observeTerm(msg, now)
	if msg.Kind != election.Stale {
		m.rules.receive(m, *msg, now, out)
	}
}

// observeTerm adopts the newer term of a message. That ends an election or a tenure of this process.
//
// A message that only shows that there is a newer term gives the process a reason to wait for the outcome of that
// term's election. It must not start an election in a yet newer term at once. For example, consider two processes that
// each start an election. If each restarted as soon as it saw the other's term, the two could overtake each other
// forever.
func (m *machine) observeTerm(msg *election.Message, now election.Tick) {
	if msg.Term <= m.Term {
		return
	}
	waits := msg.Kind == election.Stale && (m.deadline != election.Never || m.Coordinator == m.Self)
	m.Term, m.deadline = msg.Term, election.Never
	if waits {
		m.deadline = now + m.round()
	}
	m.Recovering = m.Recovering && waits
}

// handleOther handles the inputs that neither start an election nor are messages.
func (m *machine) handleOther(in *election.Input, out *election.Output) {
	if in.Kind == election.Suspect && in.Ineligible {
		return // "the control part of a failed process" still forwards ([Textbook])
	}
	m.HandleCommon(in, out)
	if in.Kind == election.Follow && in.Peer != election.None {
		m.deadline = election.Never
	}
	if !m.Eligible() {
		m.ownTerm = 0 // ignore its own messages when they come back
		if !m.Recovering {
			m.deadline = election.Never
		}
	}
}

// sendOwn sends the process's own identifier round the ring.
func (m *machine) sendOwn(kind election.Kind, out *election.Output) {
	m.ownTerm = m.Term
	m.forward(election.Message{Kind: kind, Term: m.Term, Origin: m.Self, Subject: m.Self}, out)
}

// announce records the outcome of this process's election, and sends it round the ring.
func (m *machine) announce(kind election.Kind, high election.ID, out *election.Output) {
	m.recordOutcome(high, m.Term, out)
	m.forward(election.Message{Kind: kind, Term: m.Term, Origin: m.Self, Subject: high}, out)
}

// handleAnnouncement records the announced outcome and forwards the
// announcement, unless it has come back to its origin.
func (m *machine) handleAnnouncement(msg election.Message, out *election.Output) {
	m.recordOutcome(msg.Subject, msg.Term, out)
	if msg.Origin != m.Self {
		m.forward(msg, out)
	}
}

// recordOutcome records the outcome of an election, unless a higher process was announced in the same term.
func (m *machine) recordOutcome(id election.ID, term election.Term, out *election.Output) {
	if !m.Roster.Has(id) || m.KnowsCoordinatorOf(term) && m.Roster.Outranks(m.Coordinator, id) {
		return
	}
	m.deadline, m.Recovering = election.Never, false
	m.Recognize(id, term, out)
}

// forward sends a message to the successor, unless it has already been round the ring.
func (m *machine) forward(msg election.Message, out *election.Output) {
	m.forwardTo(m.successor(election.None), msg, out)
}

func (m *machine) forwardTo(to election.ID, msg election.Message, out *election.Output) {
	if int(msg.Hops) < m.Roster.Len() {
		msg.Hops++
		msg.To = to
		m.Send(out, msg)
	}
}

// skip sends a message that could not be delivered to the process after the one that doesn't respond.
func (m *machine) skip(msg election.Message, out *election.Output) {
	if msg.From != m.Self || !m.Roster.Has(msg.To) || msg.To == m.Self {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	out.Emit(election.Skipped, msg.Term, msg.To)
	m.forwardTo(m.successor(msg.To), msg, out)
}

// successor returns the next process on the ring that isn't suspected. If silent isn't suspected either, although it
// doesn't respond, the result is behind it. If there is no other process, it is this process itself.
func (m *machine) successor(silent election.ID) election.ID {
	if !m.Roster.Has(m.Self) {
		return m.Self
	}
	behind := silent == election.None || m.Suspects.Has(silent)
	for i := 1; i < m.Roster.Len(); i++ {
		id := m.Roster.After(m.Self, i)
		if behind && !m.Suspects.Has(id) {
			return id
		}
		behind = behind || id == silent
	}
	return m.Self
}

// Deadline returns when the election must be over.
func (m *machine) Deadline() election.Tick { return m.deadline }

// Status returns what the process knows.
func (m *machine) Status() election.Status {
	return election.Status{Coordinator: m.Coordinator, Term: m.Term, Electing: m.deadline != election.Never}
}

// Rows appends the table that follows from the coordinator.
func (m *machine) Rows(rows []election.Row) []election.Row { return m.CoordinatorRows(rows) }

// Clone returns an independent copy.
func (m *machine) Clone() election.Machine {
	c := *m
	c.Process = m.CloneProcess()
	c.collected = m.collected.Clone()
	return &c
}

// Encode appends the state to b.
func (m *machine) Encode(b []byte, now election.Tick) []byte {
	b = m.EncodeProcess(b)
	b = election.AppendMoment(b, m.deadline, now)
	b = election.AppendNumber(b, uint64(m.ownTerm))
	b = election.AppendNumber(b, uint64(m.deadCoordinator))
	b = election.AppendFlag(b, m.initiator)
	b = election.AppendFlag(b, m.inquiring)
	b = election.AppendNumber(b, uint64(m.minTerm))
	return m.collected.Encode(b)
}
