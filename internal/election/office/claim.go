package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// claimTimeout is how long a claim may take. Grants of an earlier holder have to
// expire first.
func (m *Machine) claimTimeout() election.Tick { return m.cfg.Lease + m.cfg.SuspicionTimeout }

// nextTerm is the lowest term that this process may use next.
func (m *Machine) nextTerm() election.Term {
	return max(m.highestTerm, m.wonTerm, m.ledger.HighestGranted(), m.support.Floor()) + 1
}

// campaignDelay is how long this process waits for an election of the processes
// above it that seem alive.
func (m *Machine) campaignDelay() election.Tick {
	above := election.Tick(0)
	for _, other := range m.roster.Ranked()[:min(m.roster.Rank(m.cfg.Self), m.roster.Len())] {
		if other.ID != m.deadCoordinator && other.Priority > 0 && !m.detector.Suspects(other.ID) && !m.peers[other.ID].skipped {
			above++
		}
	}
	return above * m.cfg.Stagger
}

// campaign starts an election, unless this process couldn't hold the office.
func (m *Machine) campaign(out *election.Output) {
	m.campaignAt = election.Never
	if m.role != follower || m.coordinator != election.None || !m.Eligible() {
		return
	}
	term := m.nextTerm()
	if term > election.MaxTerm {
		return
	}
	if due := m.cfg.Clock.Due(term); m.now < due {
		m.campaignAt = due + m.campaignDelay() // processes with equal clocks must not campaign at once
		return
	}
	trusted := m.vacancy.proven && m.vacancy.attempts == 0 && m.majorityAlive()
	if m.cfg.Mode != Available && !trusted && !m.preVote() {
		m.vacancy.preVoting = true
		return
	}
	m.vacancy.attempt()
	m.campaignAt = m.now + m.cfg.SuspicionTimeout + m.campaignDelay()
	if m.namedSuccessor || m.vacancy.attempts > 1 {
		m.namedSuccessor = false
		m.claim(term, out)
		return
	}
	m.stepInner(election.Input{Kind: election.Campaign, Now: m.now, Peer: m.deadCoordinator, Term: term}, out)
}

// claim requests the office after an election was won. In Available mode it does
// nothing while another process holds the office (see coordinatorLost), because
// the process that started the election may be the one that is cut off. In the
// other modes the members decide, since they know which process they granted.
func (m *Machine) claim(term election.Term, out *election.Output) {
	if m.coordinator != election.None && m.cfg.Mode == Available {
		return
	}
	m.wonTerm = term
	if !m.Eligible() || !m.couldHold() {
		return
	}
	if m.role == candidate {
		m.releaseGrants(out)
	}
	if term <= m.ledger.HighestGranted() && m.ledger.Holder(m.now) != m.incarnation() {
		// Not even this process could grant the term, because the office may have
		// been held in it before.
		m.role, m.claimUntil, m.beatAt = follower, election.Never, election.Never
		m.campaignAt = m.now + m.backoff()
		return
	}
	m.role, m.term = candidate, term
	// No member grants a term that its clock hasn't reached.
	m.claimUntil, m.campaignAt = max(m.now, m.cfg.Clock.Due(term))+m.claimTimeout(), election.Never
	m.support.Clear()
	for i := range m.peers {
		m.peers[i].refusedClaim = false
	}
	m.updateWatch()
	m.heartbeat(out)
}

// acquireIfGranted acquires the office as soon as the grants suffice.
func (m *Machine) acquireIfGranted(out *election.Output) {
	if m.role != candidate || m.now >= m.until() {
		return
	}
	if m.term <= m.support.Floor() && m.cfg.Mode != Available {
		// A tenure under an older list may have had this term or a higher one.
		m.abandonClaim(out)
		m.campaignAt = m.now + m.backoff()
		return
	}
	m.role, m.claimUntil = holder, election.Never
	m.endVacancy()
	m.recordSuccession(m.cfg.Self, out)
	m.coordinatorTerm = m.term
	m.deadCoordinator = election.None
	m.readmitAll(out)
	m.token = election.TokenOf(m.term, m.roster.Priority(m.cfg.Self))
	out.Events = append(out.Events, election.Event{
		Kind: election.TenureStarted, Peer: m.cfg.Self, Term: m.term, Token: m.token,
	})
	m.wonTerm = max(m.wonTerm, m.term, m.inner.Status().Term)
	m.stepInner(election.Input{Kind: election.Follow, Now: m.now, Peer: m.cfg.Self, Term: m.term}, out)
	m.beatAt = m.now
}

// handleGrant counts a grant. A holder also checks whether a higher process is
// ready for the office.
func (m *Machine) handleGrant(msg *election.Message, out *election.Output) {
	m.recordAnswer(msg)
	if m.role == follower || msg.Term != m.term || msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	if m.cfg.Mode != Available {
		m.peers[msg.From].refusedClaim = false
		m.support.Add(msg.From, min(msg.Hold.Sent, m.now)) // no request was sent later than now
		m.acquireIfGranted(out)
	}
	if m.role == holder && m.roster.Outranks(msg.From, m.cfg.Self) {
		m.considerHandOver(out)
	}
}

// handleDeny counts a refusal. If no majority can grant this term any more, the
// next claim uses a higher one. In Available mode a holder whose term is too low for
// a member gives the office up and acquires it in a higher one, unless that member
// follows a coordinator of higher rank. For example, the member has followed a newer
// coordinator, which has failed since.
func (m *Machine) handleDeny(msg *election.Message, out *election.Output) {
	m.recordAnswer(msg)
	if m.cfg.Mode == Available && m.role >= holder && msg.Term > m.term && m.roster.Outranks(m.cfg.Self, msg.Subject) {
		m.loseTenure(out)
		m.campaignAt = m.now
		return
	}
	if m.role != candidate || msg.Term < m.term || msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	m.peers[msg.From].refusedClaim = true
	if !m.majority(func(id election.ID) bool { return !m.peers[id].refusedClaim }) {
		m.abandonClaim(out)
		m.campaignAt = m.now + m.backoff()
	}
}

// recordAnswer records what every answer to a BEAT reports about its sender.
func (m *Machine) recordAnswer(msg *election.Message) {
	m.highestTerm = max(m.highestTerm, msg.Term)
	m.support.RecordAdoption(msg.From, msg.Hold.Version, msg.Hold.HighestGranted)
	p := &m.peers[msg.From]
	ready := msg.Hold.Ready && msg.Hold.Version == m.roster.Version
	if ready && !p.ready {
		p.readySince = m.now
	}
	p.ready = ready
	p.answersUntil = m.now + m.probeTimeout()
	p.follows, p.followsUntil = msg.Subject, p.answersUntil
}

// unanswered reports whether a claim of two heartbeats reaches too few members that
// haven't refused it. The
// sooner it is given up, the sooner those members grant another process.
func (m *Machine) unanswered() bool {
	answersDue := m.claimUntil - m.claimTimeout() + 2*m.cfg.Heartbeat
	mayGrant := func(id election.ID) bool { return m.peers[id].answersUntil > m.now && !m.peers[id].refusedClaim }
	return m.cfg.Mode != Available && m.now >= answersDue && !m.majority(mayGrant)
}

// claimTimedOut ends a claim that took too long. The highest process keeps its
// term, though, as long as a majority answers that follows no other coordinator,
// and no member has refused it.
// Members whose clocks are behind grant the term as soon as their clocks have
// reached it. If the process went on to a newer term each time, they never would.
func (m *Machine) claimTimedOut(out *election.Output) {
	refused := slices.ContainsFunc(m.peers, func(p peer) bool { return p.refusedClaim })
	if m.role == candidate && m.coordinator == election.None && m.campaignDelay() == 0 && !refused && m.preVote() {
		m.claimUntil = m.now + m.claimTimeout()
		return
	}
	m.abandonClaim(out)
}

// abandonClaim gives up a claim.
func (m *Machine) abandonClaim(out *election.Output) {
	if m.role != candidate {
		m.claimUntil = election.Never
		return
	}
	m.releaseGrants(out)
	m.role = follower
	m.claimUntil, m.beatAt = election.Never, election.Never
	m.updateWatch()
	if m.coordinator != election.None {
		return
	}
	m.campaignAt = m.now + m.cfg.Heartbeat + m.campaignDelay() + m.backoff()
}

// releaseGrants releases what the members have granted in this term.
func (m *Machine) releaseGrants(out *election.Output) {
	m.ledger.Release(m.incarnation(), m.term, m.now)
	m.support.Clear()
	m.sendResigned(election.None, out)
}

// incarnation identifies this incarnation of the process.
func (m *Machine) incarnation() grants.Holder {
	return grants.Holder{ID: m.cfg.Self, Life: m.cfg.Life}
}
