package ring

import "github.com/conclave-dev/conclave/internal/election"

// champion is the refined election of [Textbook]. A process replaces a lower identifier by its own, so that only the
// highest one comes back to its owner, the champion. The champion announces itself.
//
// Messages: d+n ELECT_ME, where d is the number of hops from the initiator to
// the highest live process, and n NEW_COORDINATOR; at most 3n-1 in all.
type champion struct{}

// NewChampion returns the process of a RingChampion that c describes.
func NewChampion(c election.Config) (election.Machine, error) { return newMachine(c, champion{}) }

// Rule 1: the initiator sends its own identifier.
func (champion) start(m *machine, out *election.Output) { m.sendOwn(election.ElectMe, out) }

func (r champion) receive(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Kind == election.NewCoordinator:
		m.handleAnnouncement(msg, out) // rule 4
	case msg.Kind != election.ElectMe:
		out.Emit(election.Refused, msg.Term, msg.From)
	case msg.Origin == m.Self:
		r.handleOwn(m, out)
	default:
		r.compare(m, msg, now, out)
	}
}

// Rule 2: a process forwards a higher identifier. It replaces a lower one by its
// own, and sends nothing if its own has already been sent.
func (champion) compare(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	switch {
	case !m.Eligible() || m.Roster.Outranks(msg.Origin, m.Self):
		m.forward(msg, out)
	case m.ownTerm != m.Term:
		m.sendOwn(election.ElectMe, out)
	}
	m.waitForOutcome(m.deadCoordinator, now)
}

// Rule 3: the process whose identifier comes back is the champion. An identifier
// that was sent to two successors comes back twice.
func (champion) handleOwn(m *machine, out *election.Output) {
	announced := m.KnowsCoordinatorOf(m.Term) && m.Coordinator == m.Self
	if m.ownTerm == m.Term && !announced {
		m.announce(election.NewCoordinator, m.Self, out)
	}
}

// Rule 5: a process that recovers starts an election.
func (champion) handleRecovery(*machine, election.Input, *election.Output) bool { return false }
