package ring

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// skip is the ring election of [SKR5302] and [UNIMORE]. One list goes round the ring and every process appends itself.
// Then the highest process on the list goes round as the coordinator.
//
// Messages: m ELECTION and m COORDINATOR for each initiator, where m is the number of live processes. Two concurrent
// elections elect the same process (rule 3).
type skip struct{}

// NewSkip returns the process of a RingSkip that c describes.
func NewSkip(c election.Config) (election.Machine, error) { return newMachine(c, skip{}) }

// Rule 1: the initiator sends a list that contains its own identifier.
func (skip) start(m *machine, out *election.Output) {
	m.forward(election.Message{
		Kind: election.Election, Term: m.Term, Origin: m.Self, Subject: m.deadCoordinator, List: []election.ID{m.Self},
	}, out)
}

func (r skip) receive(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Kind == election.Coordinator:
		m.handleAnnouncement(msg, out)
	case msg.Kind != election.Election:
		out.Emit(election.Refused, msg.Term, msg.From)
	case !slices.Contains(msg.List, m.Self):
		r.appendSelf(m, msg, now, out)
	case msg.Origin == m.Self:
		r.complete(m, msg.List, out)
	default: // its origin has failed, and the list has been round the ring without success
	}
}

// Rule 1: each process appends itself and forwards the list.
func (skip) appendSelf(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	if m.Eligible() && len(msg.List) < m.Roster.Len() {
		msg.List = append(slices.Clone(msg.List), m.Self)
	}
	m.forward(msg, out)
	m.waitForOutcome(msg.Subject, now)
}

// Rule 2: the initiator announces the highest process on the list that has come back. A list that was sent to two
// successors comes back twice. It is announced again only if a higher process is on it.
func (skip) complete(m *machine, list []election.ID, out *election.Output) {
	high := m.Roster.HighestOf(m.Self, list)
	higher := m.Eligible() && m.KnowsCoordinatorOf(m.Term) && m.Roster.Outranks(high, m.Coordinator)
	if m.ownTerm == m.Term || higher {
		m.ownTerm = 0
		m.announce(election.Coordinator, high, out)
	}
}

// Rule 4: a process that recovers starts an election.
func (skip) handleRecovery(*machine, election.Input, *election.Output) bool { return false }
