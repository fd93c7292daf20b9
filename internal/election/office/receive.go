package office

import "github.com/conclave-dev/conclave/internal/election"

// maxMessageTermsAhead limits how far the term of a message may be ahead of the
// clock. With terms of a tenth of a second it allows for clocks that differ by
// a minute. It is too small to exhaust the terms, or to prevent others from
// campaigning for a long time.
const maxMessageTermsAhead = 2 * election.AcceptedSkew

// receive handles a message, of the inner election or of the office.
func (m *Machine) receive(in *election.Input, out *election.Output) {
	msg := &in.Message
	own := msg.From == m.cfg.Self && !msg.Kind.Counts() // a process doesn't request grants of itself by message
	timing := msg.Hold.Lease < 0 || msg.Hold.Heartbeat < 0
	if msg.To != m.cfg.Self || own || timing || max(msg.Term, msg.Hold.HighestGranted) > m.maxAcceptableTerm() || !m.isMember(msg.From) {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	m.lamport = max(m.lamport, msg.Lamport)
	if msg.From != m.cfg.Self {
		m.peers[msg.From].life = msg.Hold.Life
		m.peers[msg.From].heardUntil = m.now + m.probeTimeout()
		// Of the coordinator, only the BEAT of its tenure counts as a sign of life.
		// For example, a coordinator that restarted without its memory is alive and
		// answers probes, but it doesn't hold the office any more.
		if msg.From != m.coordinator || msg.Kind == election.Beat && msg.Hold.Held && msg.Term == m.coordinatorTerm && m.acknowledged(msg) {
			m.markAlive(msg.From, out)
		}
		m.recordEligibility(msg, out)
	}
	switch msg.Kind {
	case election.Beat:
		m.see(msg.Term)
		if m.peers[msg.From].hasResigned(msg) || m.roster.Priority(msg.From) == 0 {
			out.Emit(election.Outdated, msg.Term, msg.From)
			return
		}
		if !msg.Hold.Held && !m.admitsClaim(msg) {
			m.sendAnswer(election.Deny, m.requestOf(msg), 0, out)
			return
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
		if !m.usable(msg.Term) {
			out.Emit(election.Refused, msg.Term, msg.From)
			return
		}
		m.receiveElection(in, out)
	}
}

// usable reports whether this process may soon use a term. Higher ones come from
// processes whose clocks are ahead, and this process doesn't follow them into terms
// that it couldn't claim itself.
func (m *Machine) usable(term election.Term) bool {
	return term <= m.cfg.Clock.Ceiling(m.now)+maxTermsAhead
}

// see records the term of a message.
func (m *Machine) see(term election.Term) {
	if m.usable(term) {
		m.highestTerm = max(m.highestTerm, term)
	}
}

// maxAcceptableTerm is the highest term that a message may have now.
func (m *Machine) maxAcceptableTerm() election.Term {
	return min(election.MaxTerm, m.cfg.Clock.Ceiling(m.now)+maxMessageTermsAhead)
}
