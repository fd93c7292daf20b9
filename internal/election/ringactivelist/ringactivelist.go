// Package ringactivelist is the ring election of [DistributedOS]. Every process
// builds its own active list of the live processes, and derives the coordinator
// from it.
//
// Assumptions: links are FIFO. The ring is one of the live processes: a dead
// successor is skipped.
//
// Messages: m*m ELECT for m live processes, whatever the number of initiators.
// A recovered process sends INQUIRY and receives REPLY, m messages in all.
//
// Not guaranteed: that there is one coordinator. An ineligible process isn't
// informed of the outcome, because the outcome isn't announced.
package ringactivelist

import "github.com/conclave-dev/conclave/internal/election"

// Machine is one process of the ring.
type Machine struct {
	election.Ring

	// active is the active list of the election of OwnTerm.
	active election.IDs
	// inquiring: this process recovers, and a REPLY is due until Due. Then
	// minTerm is the lowest term to use.
	inquiring bool
	minTerm   election.Term
}

// New returns the process that c describes.
func New(c election.Config) (election.Machine, error) {
	r, err := election.NewRing(c)
	if err != nil {
		return nil, err
	}
	return &Machine{Ring: r}, nil
}

// Step handles one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	switch in.Kind {
	case election.TimePassed:
		if in.Now >= m.Due {
			m.start(m.RestartInput(in.Now), out)
		}
	case election.Receive:
		m.receive(&in.Message, in.Now, out)
	case election.Campaign:
		m.start(in, out)
	case election.Recover:
		m.inquire(in, out)
	default:
		m.HandleRing(&in, out)
	}
}

func (m *Machine) start(in election.Input, out *election.Output) {
	m.inquiring = false
	in.Term = max(in.Term, m.minTerm)
	if m.Begin(&in, out) {
		m.sendOwn(out)
	}
}

// sendOwn creates the active list and sends the process's own identifier round
// the ring.
func (m *Machine) sendOwn(out *election.Output) {
	m.OwnTerm = m.Term
	m.active = append(m.active[:0], m.Self)
	m.Forward(out, election.Message{Kind: election.Elect, Term: m.Term, Origin: m.Self, Subject: m.Self})
}

// inquire asks which process is coordinator: the recovery of [DistributedOS].
func (m *Machine) inquire(in election.Input, out *election.Output) {
	m.inquiring, m.minTerm, m.Due = true, in.Term, in.Now+m.Round()
	m.Recovering = m.NoPreemption
	m.Forward(out, election.Message{Kind: election.Inquiry, Term: m.Term, Origin: m.Self, Subject: m.Self})
}

func (m *Machine) receive(msg *election.Message, now election.Tick, out *election.Output) {
	if msg.Kind == election.Inquiry || msg.Kind == election.Reply {
		if m.Accept(msg, out) {
			m.handleRecovery(msg, now, out) // a recovering process may have any term, or none
		}
		return
	}
	if !m.AcceptCurrent(msg, out) {
		return
	}
	m.ObserveTerm(msg, now)
	switch msg.Kind {
	case election.Elect:
		m.handleElect(msg, now, out)
	case election.Stale:
	default:
		out.Emit(election.Refused, msg.Term, msg.From)
	}
}

// handleElect adds an identifier to the active list and forwards it. It first
// sends this process's own identifier. In the other order an initiator's
// identifier would come back to it before those of all other processes.
func (m *Machine) handleElect(msg *election.Message, now election.Tick, out *election.Output) {
	if msg.Origin == m.Self {
		m.complete(out)
		return
	}
	if m.Eligible() && m.OwnTerm != m.Term {
		m.sendOwn(out)
		m.WaitForOutcome(m.DeadCoordinator, now)
	}
	if m.OwnTerm == m.Term && m.Roster.Has(msg.Origin) {
		m.active.Add(msg.Origin)
		if m.KnowsCoordinatorOf(m.Term) && m.Roster.Outranks(msg.Origin, m.Coordinator) {
			m.complete(out) // the identifier took a detour round a failure
		}
	}
	m.Forward(out, *msg)
}

// complete derives the coordinator from the list. Nothing is announced.
func (m *Machine) complete(out *election.Output) {
	if m.OwnTerm != m.Term {
		return
	}
	high := m.Roster.HighestOf(m.Self, m.active)
	m.RecordOutcome(high, m.Term, out)
}

// handleRecovery handles the messages of a recovery.
func (m *Machine) handleRecovery(msg *election.Message, now election.Tick, out *election.Output) {
	switch {
	case !m.Roster.Has(msg.Origin):
		out.Emit(election.Refused, msg.Term, msg.From)
	case msg.Kind == election.Inquiry:
		m.handleInquiry(msg, now, out)
	default:
		m.handleReply(msg, now, out)
	}
}

// handleInquiry answers an INQUIRY if this process is coordinator, and forwards
// it otherwise.
func (m *Machine) handleInquiry(msg *election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Origin == m.Self:
		if m.inquiring {
			m.start(m.RestartInput(now), out) // the INQUIRY reached no coordinator
		}
	case m.Coordinator == m.Self:
		m.Forward(out, election.Message{
			Kind: election.Reply, Term: m.CoordinatorTerm, Origin: msg.Origin, Subject: m.Self, Hops: msg.Hops,
		})
	default:
		m.Forward(out, *msg)
	}
}

func (m *Machine) handleReply(msg *election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Origin != m.Self:
		m.Forward(out, *msg)
	case !m.inquiring:
	case m.Preempts(msg.Subject):
		m.Term = max(m.Term, msg.Term)
		m.start(m.RestartInput(now), out)
	default:
		m.inquiring = false
		m.RecordOutcome(msg.Subject, msg.Term, out)
	}
}

// Deadline returns when the election must be over.
func (m *Machine) Deadline() election.Tick { return m.Due }

// Status returns what the process knows.
func (m *Machine) Status() election.Status { return m.RingStatus() }

// Rows appends the table that follows from the coordinator.
func (m *Machine) Rows(rows []election.Row) []election.Row { return m.CoordinatorRows(rows) }

// Clone returns an independent copy.
func (m *Machine) Clone() election.Machine {
	c := *m
	c.Ring = m.CloneRing()
	c.active = m.active.Clone()
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	b = m.EncodeRing(b, now)
	b = election.AppendFlag(b, m.inquiring)
	b = election.AppendNumber(b, uint64(m.minTerm))
	return m.active.Encode(b)
}
