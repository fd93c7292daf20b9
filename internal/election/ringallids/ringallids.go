// Package ringallids is the first election of [Textbook] on a unidirectional
// ring. The identifier of every live process goes round the whole ring, and the
// initiator picks the highest one.
//
// Assumptions: links are FIFO. The control part of a failed process still
// forwards messages (the process is ineligible). A process that doesn't respond
// is skipped.
//
// Messages: live*n ELECT_ME, and n NEW_COORDINATOR for each initiator.
//
// Not guaranteed: that there is one coordinator, and that an election has an
// outcome if processes fail during it. A process that waits without success starts
// again.
package ringallids

import "github.com/conclave-dev/conclave/internal/election"

// Machine is one process of the ring.
type Machine struct {
	election.Ring

	// collected are the identifiers seen in the election of OwnTerm.
	collected election.IDs
	// initiator: this process started the election of OwnTerm.
	initiator bool
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
	case election.Campaign, election.Recover:
		m.start(in, out)
	default:
		m.HandleRing(&in, out)
	}
}

func (m *Machine) start(in election.Input, out *election.Output) {
	if m.Begin(&in, out) {
		m.initiator = true
		m.sendOwn(out)
	}
}

// sendOwn sends the process's own identifier round the ring.
func (m *Machine) sendOwn(out *election.Output) {
	m.OwnTerm = m.Term
	m.collected = append(m.collected[:0], m.Self)
	m.Forward(out, election.Message{Kind: election.ElectMe, Term: m.Term, Origin: m.Self, Subject: m.Self})
}

func (m *Machine) receive(msg *election.Message, now election.Tick, out *election.Output) {
	if !m.AcceptCurrent(msg, out) {
		return
	}
	m.ObserveTerm(msg, now)
	switch msg.Kind {
	case election.ElectMe:
		if msg.Origin == m.Self {
			m.handleOwnReturned(out)
		} else {
			m.handleOther(msg, now, out)
		}
	case election.NewCoordinator:
		m.HandleAnnouncement(msg, out)
	case election.Stale:
	default:
		out.Emit(election.Refused, msg.Term, msg.From)
	}
}

// handleOther forwards the identifier of another process. It first sends this
// process's own identifier, if that hasn't been sent in this term.
func (m *Machine) handleOther(msg *election.Message, now election.Tick, out *election.Output) {
	if m.Eligible() && m.OwnTerm != m.Term {
		m.initiator = false
		m.sendOwn(out)
		m.WaitForOutcome(m.DeadCoordinator, now)
	}
	if m.OwnTerm == m.Term && m.Roster.Has(msg.Origin) {
		m.collected.Add(msg.Origin)
	}
	m.Forward(out, *msg)
}

// handleOwnReturned handles the return of the process's own identifier. All
// other identifiers have passed before it, because links are FIFO.
func (m *Machine) handleOwnReturned(out *election.Output) {
	if !m.initiator || m.OwnTerm != m.Term {
		return
	}
	m.initiator = false
	high := m.Roster.HighestOf(m.Self, m.collected)
	m.RecordOutcome(high, m.Term, out)
	m.Forward(out, election.Message{Kind: election.NewCoordinator, Term: m.Term, Origin: m.Self, Subject: high})
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
	c.collected = m.collected.Clone()
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	b = m.EncodeRing(b, now)
	b = election.AppendFlag(b, m.initiator)
	return m.collected.Encode(b)
}
