// Package ringchampion is the refined election of [Textbook] on a
// unidirectional ring. A process replaces a lower identifier by its own, so
// that only the highest identifier comes back to its owner, the champion. The
// champion announces itself.
//
// Assumptions: links are FIFO. The control part of a failed process still
// forwards messages (the process is ineligible). A process that doesn't respond
// is skipped.
//
// Messages: d+n ELECT_ME, where d is the number of hops from the initiator to
// the highest live process, and n NEW_COORDINATOR; at most 3n-1 in all.
//
// Not guaranteed: that there is one coordinator, and that an election has an
// outcome if processes fail during it. A process that waits without success starts
// again.
package ringchampion

import "github.com/conclave-dev/conclave/internal/election"

// Machine is one process of the ring.
type Machine struct {
	election.Ring
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
		m.sendOwn(out)
	}
}

func (m *Machine) sendOwn(out *election.Output) {
	m.OwnTerm = m.Term
	m.Forward(out, election.Message{Kind: election.ElectMe, Term: m.Term, Origin: m.Self, Subject: m.Self})
}

func (m *Machine) receive(msg *election.Message, now election.Tick, out *election.Output) {
	if !m.AcceptCurrent(msg, out) {
		return
	}
	m.ObserveTerm(msg, now)
	switch msg.Kind {
	case election.ElectMe:
		m.compare(msg, now, out)
	case election.NewCoordinator:
		m.HandleAnnouncement(msg, out)
	case election.Stale:
	default:
		out.Emit(election.Refused, msg.Term, msg.From)
	}
}

// compare forwards the identifier that arrived, or replaces it by this
// process's own if that is higher. It sends nothing if its own is higher but
// has already been sent.
func (m *Machine) compare(msg *election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Origin == m.Self:
		// A message that was sent to two successors comes back twice.
		announced := m.KnowsCoordinatorOf(m.Term) && m.Coordinator == m.Self
		if m.OwnTerm != m.Term || announced {
			return
		}
		m.RecordOutcome(m.Self, m.Term, out)
		m.Forward(out, election.Message{Kind: election.NewCoordinator, Term: m.Term, Origin: m.Self, Subject: m.Self})
		return
	case !m.Eligible() || m.Roster.Outranks(msg.Origin, m.Self):
		m.Forward(out, *msg)
	case m.OwnTerm != m.Term:
		m.sendOwn(out)
	}
	m.WaitForOutcome(m.DeadCoordinator, now)
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
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	return m.EncodeRing(b, now)
}
