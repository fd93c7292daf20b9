package ring

import "github.com/conclave-dev/conclave/internal/election"

// allIDs is the first election of [Textbook]. The identifier of every live
// process goes round the whole ring, and the initiator picks the highest one.
//
// Messages: live*n ELECT_ME, and n NEW_COORDINATOR for each initiator.
type allIDs struct{}

// NewAllIDs returns the process of a RingAllIDs that c describes.
func NewAllIDs(c election.Config) (election.Machine, error) { return newMachine(c, allIDs{}) }

// Rule 1: the initiator sends its own identifier.
func (r allIDs) start(m *machine, out *election.Output) {
	m.initiator = true
	r.sendOwn(m, out)
}

func (allIDs) sendOwn(m *machine, out *election.Output) {
	m.collected = append(m.collected[:0], m.Self)
	m.sendOwn(election.ElectMe, out)
}

func (r allIDs) receive(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Kind == election.NewCoordinator:
		m.handleAnnouncement(msg, out)
	case msg.Kind != election.ElectMe:
		out.Emit(election.Refused, msg.Term, msg.From)
	case msg.Origin == m.Self:
		r.handleOwn(m, out)
	default:
		r.collect(m, msg, now, out)
	}
}

// Rule 2: a process that sees the first identifier of an election sends its own
// first. It stores and forwards all others.
func (r allIDs) collect(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	if m.Eligible() && m.ownTerm != m.Term {
		m.initiator = false
		r.sendOwn(m, out)
		m.waitForOutcome(m.deadCoordinator, now)
	}
	if m.ownTerm == m.Term && m.Roster.Has(msg.Origin) {
		m.collected.Add(msg.Origin)
	}
	m.forward(msg, out)
}

// Rule 3: all other identifiers have passed before that of the initiator comes
// back, because links are FIFO. The other processes drop their own identifiers.
func (allIDs) handleOwn(m *machine, out *election.Output) {
	if m.initiator && m.ownTerm == m.Term {
		m.initiator = false
		m.announce(election.NewCoordinator, m.Roster.HighestOf(m.Self, m.collected), out)
	}
}

// Rule 4: a process that recovers starts an election.
func (allIDs) handleRecovery(*machine, election.Input, *election.Output) bool { return false }
