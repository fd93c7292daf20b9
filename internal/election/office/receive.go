package office

import "github.com/conclave-dev/conclave/internal/election"

// maxVersionsAhead limits how much newer than the list of this process that of another one may be: two years,
// if versions are seconds. maxTermsAhead limits how far an election may be ahead of the terms in use. So a
// message can't use up the terms.
const (
	maxVersionsAhead               = 1 << 26
	maxTermsAhead    election.Term = 1 << 12
)

// receive handles a message, of the inner election or of the office.
func (m *Machine) receive(in *election.Input, out *election.Output) {
	msg := &in.Message
	own := msg.From == m.cfg.Self && !msg.Kind.Counts() // a process doesn't request grants of itself by message
	timing := msg.Hold.Lease < 0 || msg.Hold.Heartbeat < 0
	if msg.To != m.cfg.Self || own || timing || !m.acceptable(msg) || !m.isMember(msg.From) {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	m.lamport = max(m.lamport, msg.Lamport)
	outdated := msg.Kind == election.Beat && m.isOutdated(msg)
	m.sendBeatToRestarted(msg, out)
	m.measureSilence(msg.From, msg.Hold.Life)
	if msg.From != m.cfg.Self {
		if p := &m.peers[msg.From]; p.life != msg.Hold.Life {
			p.life = msg.Hold.Life
			p.startedAt = m.now
		}
		m.peers[msg.From].heardUntil = m.now + m.probeTimeout()
		// Of the coordinator, only the BEAT of its tenure counts as a sign of life. For example, a coordinator that restarted
		// without its memory is alive and answers probes, but it doesn't hold the office any more.
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

// acceptable reports whether the terms of a message can be right.
func (s *state) acceptable(msg *election.Message) bool {
	highest := max(msg.Term, msg.Hold.HighestGranted)
	return highest <= election.MaxTerm && highest.Version() <= s.roster.Version+maxVersionsAhead &&
		msg.Hold.Version <= s.roster.Version+maxVersionsAhead
}

// see records the term of a message, if this process may claim the next one.
func (s *state) see(term election.Term) {
	if s.claimable(term) && s.withinReach(term) {
		s.highestTerm = max(s.highestTerm, term)
	}
}

// withinReach reports whether a term of the list isn't too far ahead of those in use. The members may have used more of
// them than this process has heard of.
func (s *state) withinReach(term election.Term) bool {
	if term.Version() != s.roster.Version || term <= max(s.termInUse(), s.ledger.HighestGranted())+maxTermsAhead {
		return true
	}
	bound, known := s.majorityBound()
	return known && term <= bound+maxTermsAhead
}

// termInUse is the highest term of the list in which there was a coordinator or a grant, as far as this process knows.
// A term that no majority can have granted, as far as the own reservation tells, is one of a false coordinator.
func (s *state) termInUse() election.Term {
	used := max(election.FirstTerm(s.roster.Version), s.ledger.HighestRemembered())
	if s.claimable(s.coordinatorTerm) && (s.cfg.Mode == Available || s.coordinatorTerm <= s.ledger.Reserved()) {
		used = max(used, s.coordinatorTerm)
	}
	return used
}
