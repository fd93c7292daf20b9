package ring

import "github.com/conclave-dev/conclave/internal/election"

// activeList is the ring election of [DistributedOS]. Every process builds its
// own active list of the live processes, and derives the coordinator from it.
//
// Messages: m*m ELECT for m live processes, whatever the number of initiators.
// A recovered process sends INQUIRY and receives REPLY, m messages in all.
//
// Not guaranteed: that an ineligible process is informed of the outcome, because the outcome isn't announced.
type activeList struct{}

// NewActiveList returns the process of a RingActiveList that c describes.
func NewActiveList(c election.Config) (election.Machine, error) { return newMachine(c, activeList{}) }

// Rule 1: the initiator creates an active list with itself, and sends its own identifier.
func (r activeList) start(m *machine, out *election.Output) { r.sendOwn(m, out) }

func (activeList) sendOwn(m *machine, out *election.Output) {
	m.collected = append(m.collected[:0], m.Self)
	m.sendOwn(election.Elect, out)
}

func (r activeList) receive(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Kind != election.Elect:
		out.Emit(election.Refused, msg.Term, msg.From)
	case msg.Origin == m.Self:
		r.complete(m, out)
	default:
		r.collect(m, msg, now, out)
	}
}

// Rules 2 and 3: a process that sees the first identifier of an election creates its list, and sends its own identifier
// first. In the other order an initiator's identifier would come back to it before those of all other processes. It
// adds all others to the list and forwards them.
func (r activeList) collect(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	if m.Eligible() && m.ownTerm != m.Term {
		r.sendOwn(m, out)
		m.waitForOutcome(m.deadCoordinator, now)
	}
	if m.Roster.Has(msg.Origin) {
		m.collected.Add(msg.Origin)
		if m.KnowsCoordinatorOf(m.Term) && m.Roster.Outranks(msg.Origin, m.Coordinator) {
			r.complete(m, out) // the identifier took a detour round a failure
		}
	}
	m.forward(msg, out)
}

// Rule 4: the list is complete when the process's own identifier comes back.
// Each process derives the coordinator from it. Nothing is announced.
func (activeList) complete(m *machine, out *election.Output) {
	if m.ownTerm == m.Term {
		m.recordOutcome(m.Roster.HighestOf(m.Self, m.collected), m.Term, out)
	}
}

// Rule 5: a process that recovers asks which process is coordinator. It may have any term, or none.
func (r activeList) handleRecovery(m *machine, in election.Input, out *election.Output) bool {
	msg := in.Message
	switch {
	case in.Kind == election.Recover:
		m.inquiring, m.minTerm, m.deadline = true, in.Term, in.Now+m.round()
		m.Recovering = m.NoPreemption
		m.forward(election.Message{Kind: election.Inquiry, Term: m.Term, Origin: m.Self, Subject: m.Self}, out)
		return true
	case in.Kind != election.Receive || msg.Kind != election.Inquiry && msg.Kind != election.Reply:
		return false
	}
	if m.Accept(&msg, out) {
		r.receiveRecovery(m, msg, in.Now, out)
	}
	return true
}

// Rule 5: INQUIRY and REPLY are forwarded to the process that recovers, but the
// coordinator sends REPLY in place of INQUIRY.
func (r activeList) receiveRecovery(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	switch {
	case !m.Roster.Has(msg.Origin):
		out.Emit(election.Refused, msg.Term, msg.From)
	case msg.Origin == m.Self:
		if m.inquiring {
			r.handleAnswer(m, msg, now, out)
		}
	case msg.Kind == election.Inquiry && m.Coordinator == m.Self:
		m.forward(election.Message{
			Kind: election.Reply, Term: m.CoordinatorTerm, Origin: msg.Origin, Subject: m.Self, Hops: msg.Hops,
		}, out)
	default:
		m.forward(msg, out)
	}
}

// Rule 5: the process that recovers starts an election if its INQUIRY comes back, because then there is no coordinator
// on the ring, or if it outranks the coordinator.
func (activeList) handleAnswer(m *machine, msg election.Message, now election.Tick, out *election.Output) {
	switch {
	case msg.Kind == election.Inquiry:
		m.restart(now, out)
	case m.Preempts(msg.Subject):
		m.Term = max(m.Term, msg.Term)
		m.restart(now, out)
	default:
		m.inquiring = false
		m.recordOutcome(msg.Subject, msg.Term, out)
	}
}
