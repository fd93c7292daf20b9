package office

import "github.com/conclave-dev/conclave/internal/election"

// maxMessageEpochsAhead limits how far the term of a message may be ahead of the
// clock. With epochs of 40 ms it allows for clocks that differ by
// a minute. It is too small to exhaust the terms, or to prevent others from
// campaigning for a long time.
const maxMessageEpochsAhead = 2 * election.AcceptedSkew

// receive handles a message, of the inner election or of the office.
func (m *Machine) receive(in *election.Input, out *election.Output) {
	msg := &in.Message
	own := msg.From == m.cfg.Self && !msg.Kind.Counts() // a process doesn't request grants of itself by message
	timing := msg.Hold.Lease < 0 || msg.Hold.Heartbeat < 0
	if msg.To != m.cfg.Self || own || timing ||
		max(msg.Term, msg.Hold.HighestGranted) > m.maxAcceptableTerm() || !m.isMember(msg.From) {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	m.lamport = max(m.lamport, msg.Lamport)
	outdated := msg.Kind == election.Beat && m.isOutdated(msg)
	m.sendBeatToRestarted(msg, out)
	m.measureSilence(msg.From, msg.Hold.Life)
	if msg.From != m.cfg.Self {
		if p := &m.peers[msg.From]; p.life != msg.Hold.Life {
			p.life, p.startedAt = msg.Hold.Life, m.now
		}
		m.peers[msg.From].heardUntil = m.now + m.probeTimeout()
		// Of the coordinator, only the BEAT of its tenure counts as a sign of life.
		// For example, a coordinator that restarted without its memory is alive and
		// answers probes, but it doesn't hold the office any more.
		if msg.From != m.coordinator || msg.Kind == election.Beat && !outdated && msg.Hold.Held &&
			msg.Term == m.coordinatorTerm && m.acknowledged(msg) {
			m.markAlive(msg.From, out)
		}
		m.recordEligibility(msg, out)
	}
	switch msg.Kind {
	case election.Beat:
		m.see(msg.Term)
		if outdated {
			out.Emit(election.Outdated, msg.Term, msg.From)
			return
		}
		if !msg.Hold.Held {
			if !m.usable(msg.Term) { // Nobody could claim the next term.
				m.sendAnswer(election.Deny, m.requestOf(msg), 0, out)
				return
			}
			m.peers[msg.From].claimedUntil = m.now + m.cfg.Lease
		}
		m.stepRole(in, out)
	case election.Grant, election.Deny:
		m.recordAnswer(msg)
		m.stepRole(in, out)
	case election.Resigned:
		m.handleResigned(msg, out)
	case election.Probe:
		m.handleProbe(msg, out)
	default:
		m.receiveElection(in, out)
	}
}

// isOutdated reports whether the sender of a BEAT may not hold the office any more: it has given it up,
// or the member list has removed or demoted it, and it isn't draining.
func (m *Machine) isOutdated(beat *election.Message) bool {
	return m.peers[beat.From].hasResigned(beat) || m.roster.Priority(beat.From) == 0 && !m.mayDrain(beat)
}

// mayDrain reports whether a process that only the previous list permits to be elected may hold the office
// until its application has stopped. It can't acquire the office.
func (m *Machine) mayDrain(beat *election.Message) bool {
	before := m.roster.Previous
	return before != nil && before.Priority(beat.From) > 0 && beat.Hold.Held && m.now < m.drainsUntil &&
		(m.cfg.Mode == Available || m.isConfirmed(beat.From, beat.Term))
}

// admitDrain permits the coordinator under the previous list to drain from now on. It may adopt the present
// list up to a lease later than this process: otherwise it loses the office.
func (m *Machine) admitDrain() { m.drainsUntil = m.now + m.cfg.DrainTimeout + m.cfg.Lease }

// usable reports whether this process may soon use a term. Higher ones come from
// processes whose clocks are ahead, and this process doesn't follow them into terms
// that it couldn't claim itself.
func (m *Machine) usable(term election.Term) bool {
	return term <= m.cfg.Clock.Ceiling(m.now)+maxEpochsAhead.First()
}

// see records the term of a message.
func (m *Machine) see(term election.Term) {
	if m.usable(term) {
		m.highestTerm = max(m.highestTerm, term)
	}
}

// maxAcceptableTerm is the highest term that a message may have now.
func (m *Machine) maxAcceptableTerm() election.Term {
	return min(election.MaxTerm, m.cfg.Clock.Ceiling(m.now)+maxMessageEpochsAhead.First())
}
