package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// claimTimeout is how long a claim may take. Grants of an earlier holder have to
// expire first.
func (m *Machine) claimTimeout() election.Tick { return m.cfg.Lease + m.cfg.SuspicionTimeout }

func (m *Machine) claimUntil() election.Tick { return m.candidacy.since + m.claimTimeout() }

// claim requests the office after an election was won, or without one: see vacancy.
func (m *Machine) claim(term election.Term, out *election.Output) {
	m.wonTerm = max(m.wonTerm, term)
	if !m.Eligible() || !m.couldHold() {
		return
	}
	if m.role == Candidate {
		m.releaseGrants(out)
	}
	if term <= m.ledger.HighestGranted() && m.ledger.Holder(m.now) != m.incarnation() {
		// Not even this process could grant the term, because the office may have
		// been held in it before.
		if m.role == Candidate {
			m.becomeFollower()
		}
		m.vacancy.campaignAt = m.now + m.backoff()
		return
	}
	m.becomeCandidate(term)
	m.heartbeat(out)
}

// acquireIfGranted acquires the office as soon as the grants suffice.
func (m *Machine) acquireIfGranted(out *election.Output) {
	if m.role != Candidate || m.now >= m.until() {
		return
	}
	if m.term <= m.support.Floor() && m.cfg.Mode != Available {
		// A tenure under an older list may have had this term or a higher one.
		m.abandonClaim(out)
		m.vacancy.campaignAt = m.now + m.backoff()
		return
	}
	m.becomeHolder(out)
}

// countGrant counts a grant. A holder also checks whether a higher process is
// ready for the office.
func (m *Machine) countGrant(msg *election.Message, out *election.Output) {
	if msg.Term != m.term || msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	if m.cfg.Mode != Available {
		m.peers[msg.From].refusedClaim = false
		granted := m.commonLease(msg.Hold.Lease)
		m.request.record(msg.Hold.Sent, granted)
		m.support.Add(msg.From, min(msg.Hold.Sent, m.now), granted) // no request was sent later than now
		m.acquireIfGranted(out)
	}
	m.measure(m.now - msg.Hold.Sent)
	if m.role == Holder && m.roster.Outranks(msg.From, m.cfg.Self) {
		m.considerHandOver(out)
	}
}

// countRefusal counts a refusal of the claim. If no majority can grant its term any
// more, the next claim uses a higher one. A process that has ended grants nothing.
func (m *Machine) countRefusal(msg *election.Message, out *election.Output) {
	if msg.Term < m.term || msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	m.peers[msg.From].refusedClaim = true
	if !m.majority(func(id election.ID) bool { return !m.peers[id].refusedClaim && !m.detector.Suspects(id) }) {
		m.abandonClaim(out)
		m.vacancy.campaignAt = m.now + m.backoff()
	}
}

// recordAnswer records what every answer to a BEAT reports about its sender. An answer to
// an earlier incarnation of this process doesn't tell what that was granted.
func (m *Machine) recordAnswer(msg *election.Message) {
	if m.cfg.Mode == Available {
		m.see(msg.Term)
	}
	if msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	m.recordBound(msg)
	m.support.RecordAdoption(msg.From, msg.Hold.Version, msg.Hold.HighestGranted)
	p := &m.peers[msg.From]
	ready := msg.Hold.Ready && msg.Hold.Version == m.roster.Version
	if ready && !p.ready {
		p.readySince = m.now
	}
	p.ready = ready
	p.answersUntil = m.now + m.probeTimeout()
	if p.follows != msg.Subject {
		p.followsTerm = 0
	}
	p.follows, p.followsUntil = msg.Subject, p.answersUntil
}

// unanswered reports whether a claim of two heartbeats reaches too few members that
// haven't refused it. The sooner it is given up, the sooner those members grant
// another process.
func (m *Machine) unanswered() bool {
	mayGrant := func(id election.ID) bool { return m.peers[id].answersUntil > m.now && !m.peers[id].refusedClaim }
	return m.cfg.Mode != Available && m.now >= m.candidacy.since+2*m.cfg.Heartbeat && !m.majority(mayGrant)
}

// claimTimedOut ends a claim that took too long, unless it stands.
func (m *Machine) claimTimedOut(out *election.Output) {
	if m.claimStands() {
		m.candidacy.since = m.now
		return
	}
	m.abandonClaim(out)
}

// claimStands reports whether a claim may succeed in its term although it takes long. That
// is so for the highest process, as long as a majority answers that follows no other
// coordinator, and no member has refused the claim.
// Members whose clocks are behind grant the term as soon as their clocks have
// reached it. If the process went on to a newer term each time, they never would.
func (m *Machine) claimStands() bool {
	refused := slices.ContainsFunc(m.peers, func(p peer) bool { return p.refusedClaim })
	return m.role == Candidate && m.coordinator == election.None && m.campaignDelay() == 0 && !refused && m.preVote()
}

// abandonClaim gives up a claim.
func (m *Machine) abandonClaim(out *election.Output) {
	m.releaseGrants(out)
	m.becomeFollower()
	if m.coordinator == election.None {
		m.vacancy.campaignAt = m.now + m.cfg.Heartbeat + m.campaignDelay() + m.backoff()
	}
}

// releaseGrants releases what the members have granted in this term.
func (m *Machine) releaseGrants(out *election.Output) {
	m.ledger.Abandon(m.incarnation(), m.term, m.now)
	m.support.Clear()
	m.sendResigned(election.None, out)
}

// incarnation identifies this incarnation of the process.
func (m *Machine) incarnation() grants.Holder {
	return grants.Holder{ID: m.cfg.Self, Life: m.cfg.Life}
}
