package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// claimTimeout is how long a claim may take. Grants of an earlier holder have to expire first, which were for the lease
// in force. A process that has just started may not know that it was a longer one. Then it has to claim again.
func (s *state) claimTimeout() election.Tick {
	return min(s.pace.of(s.cfg.usualLease()), s.cfg.Lease) + s.cfg.SuspicionTimeout
}

func (m *Machine) claimUntil() election.Tick { return m.candidacy.since + m.claimTimeout() }

// claim requests the office after an election was won, or without one: see vacancy.
func (m *Machine) claim(term election.Term, out *election.Output) {
	m.wonTerm = max(m.wonTerm, term)
	if !m.Eligible() || !m.couldHold() {
		return
	}
	if !m.claimable(term) {
		m.vacancy.campaignAt = min(m.vacancy.campaignAt, m.now+m.backoff())
		return
	}
	if m.role == Candidate {
		m.releaseGrants(out)
	}
	m.becomeCandidate(term)
	m.heartbeat(out)
}

// acquireIfGranted acquires the office as soon as the grants suffice.
func (m *Machine) acquireIfGranted(out *election.Output) {
	if m.role != Candidate || m.now >= m.until() {
		return
	}
	if !m.renewable() {
		m.awaitRenewable(out)
		return
	}
	m.becomeHolder(out)
}

// renewable reports whether the grants last until they can be renewed. The next answers arrive
// a heartbeat after those that count now, since that is how much later their request was sent.
// If the members answer more slowly, the grants would expire before that, in each tenure.
func (m *Machine) renewable() bool {
	interval := m.beatInterval()
	return m.cfg.Mode == Available || m.until()-m.now > interval+m.tenures.lapses.margin(interval, m.grantsLast()-interval)
}

// grantsLast returns how long the grants for the last request last, from when it was sent.
func (m *Machine) grantsLast() election.Tick {
	return m.request.granted - grants.Margin(m.request.granted)
}

// awaitRenewable makes a candidate wait until its grants last longer. Members may have deferred
// these grants until an earlier one expired. So the candidate requests new ones, at once unless
// later requests are on their way. If their answers arrive no sooner, it requests a longer lease. If that is the
// longest one already, it reports that the members are too far away, once in a vacancy.
func (m *Machine) awaitRenewable(out *election.Output) {
	lasts := m.grantsLast()
	if m.until() >= m.request.sent+lasts && m.now > m.request.sent {
		m.beatAt = m.now
	}
	m.candidacy.slowAt = min(m.candidacy.slowAt, m.now+m.cfg.Heartbeat/2)
	if m.now < m.candidacy.slowAt {
		return
	}
	roundTrip := max(lasts-(m.until()-m.now), 1)
	if longer := m.cfg.paceForLease(leasePerAge * (roundTrip + m.cfg.Heartbeat)); longer > m.pace {
		m.pace, m.beatAt, m.candidacy.slowAt = longer, m.now, election.Never
	} else if m.vacancy.roundTrip == 0 {
		m.vacancy.roundTrip = roundTrip
		out.Emit(election.TooSlow, m.term, m.cfg.Self)
	}
}

// SlowAnswers returns how long the members take to answer if that is why this process doesn't
// acquire the office, and how long they may take: see renewable. Otherwise it returns 0.
func (m *Machine) SlowAnswers() (roundTrip, limit election.Tick) {
	if m.vacancy.roundTrip == 0 {
		return 0, 0
	}
	lease := m.leaseInForce()
	slack := lease - grants.Margin(lease) - m.cfg.Heartbeat
	return m.vacancy.roundTrip, slack - m.tenures.lapses.margin(m.cfg.Heartbeat, slack)
}

// countGrant counts a grant. A holder also checks whether a higher process is ready for the office.
func (m *Machine) countGrant(msg *election.Message, out *election.Output) {
	if msg.Term != m.term || msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	if m.cfg.Mode != Available {
		m.peers[msg.From].refusedClaim = false
		granted := m.commonLease(msg.Hold.Lease)
		m.request.record(msg.Hold.Sent, granted)
		sent := min(msg.Hold.Sent, m.now) // no request was sent later than now
		m.support.Add(msg.From, sent, granted)
		m.recordGrant(msg.From, sent, granted)
		m.acquireIfGranted(out)
	}
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
func (s *state) recordAnswer(msg *election.Message) {
	if s.cfg.Mode == Available {
		s.see(msg.Term)
	}
	if msg.Hold.RequesterLife != s.cfg.Life {
		return
	}
	s.recordReport(msg)
	p := &s.peers[msg.From]
	ready := msg.Hold.Ready && msg.Hold.Version == s.roster.Version
	if ready && !p.ready {
		p.readySince = s.now
	}
	p.ready = ready
	if p.follows != msg.Subject {
		p.followsTerm = 0
	}
	p.follows, p.followsUntil = msg.Subject, p.answersUntil
}

// claimFails reports whether a claim has taken too long or, after two heartbeats, can't get enough grants any more:
// members don't answer, or have refused it. The sooner it is given up, the sooner the others grant another process.
func (m *Machine) claimFails() bool {
	if m.now >= m.claimUntil() {
		return true
	}
	mayGrant := func(id election.ID) bool {
		return m.peers[id].answersUntil > m.now && !m.peers[id].refusedClaim
	}
	return m.cfg.Mode != Available && m.now >= m.candidacy.since+2*m.cfg.Heartbeat && !m.majority(mayGrant)
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
func (s *state) incarnation() grants.Holder {
	return grants.Holder{ID: s.cfg.Self, Life: s.cfg.Life}
}
