package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// patience is how long a claim may take: what an earlier holder was granted has
// to run out first.
func (m *Machine) claimTimeout() election.Tick { return m.cfg.Lease + m.cfg.SuspicionTimeout }

// canStand reports whether this process may hold the office.
func (m *Machine) canStand() bool { return !m.withdrawn && m.roster.Priority(m.cfg.Self) > 0 }

// ready reports whether it could win an election at once.
func (m *Machine) ready() bool {
	return m.canStand() && m.reachesMajority() && !m.ledger.WaitingAfterRestart(m.now) && m.now >= m.cfg.Clock.Due(m.nextTerm())
}

// mayTakeOver reports whether this process follows a coordinator below it, which
// may hand the office over.
func (m *Machine) mayTakeOver() bool {
	return m.role == follower && m.coordinator != election.None && m.cfg.Mode != Available &&
		m.roster.Outranks(m.cfg.Self, m.coordinator)
}

// reachesMajority reports whether a process that waits to take over has heard of
// a majority by itself: that the coordinator hears of everyone helps it nothing.
func (m *Machine) reachesMajority() bool {
	if !m.mayTakeOver() {
		return true
	}
	heard := 1
	for _, other := range m.roster.Ring() {
		if other.ID != m.cfg.Self && m.peers[other.ID].aliveUntil > m.now {
			heard++
		}
	}
	return heard >= m.roster.Majority()
}

// updateReachability keeps the election inside from electing this process, or from
// waiting for it, while it reaches too few to hold the office.
func (m *Machine) updateReachability(out *election.Output) {
	if m.cfg.Mode == Available || m.withdrawn || m.role >= holder || m.aside != m.majorityAlive() {
		return
	}
	m.aside = !m.aside
	kind := election.BecomeEligible
	if m.aside {
		kind = election.BecomeIneligible
	}
	m.stepInner(election.Input{Kind: kind, Now: m.now}, out)
}

// nextTerm is the least term that this process may use next.
func (m *Machine) nextTerm() election.Term {
	return max(m.highestTerm, m.wonTerm, m.ledger.HighestGranted(), m.support.Floor()) + 1
}

// stagger is how long to leave an election to those above that seem alive.
func (m *Machine) campaignDelay() election.Tick {
	above := election.Tick(0)
	for _, other := range m.roster.Ranked()[:min(m.roster.Rank(m.cfg.Self), m.roster.Len())] {
		if other.ID != m.deadCoordinator && other.Priority > 0 && !m.detector.Suspects(other.ID) && !m.peers[other.ID].skipped {
			above++
		}
	}
	return above * m.cfg.Stagger
}

// campaign starts an election, unless that would be for nothing.
func (m *Machine) campaign(out *election.Output) {
	m.campaignAt = election.Never
	if m.role != follower || m.coordinator != election.None || !m.canStand() {
		return
	}
	term := m.nextTerm()
	if due := m.cfg.Clock.Due(term); m.now < due {
		m.campaignAt = due + m.campaignDelay() // clocks that read alike must not make everyone stand at once
		return
	}
	if m.cfg.Mode != Available && !m.majorityAlive() {
		m.campaignAt = m.now + m.cfg.SuspicionTimeout
		return
	}
	if m.namedSuccessor {
		m.namedSuccessor = false
		m.claim(term, out)
		return
	}
	m.campaignAt = m.now + m.claimTimeout() + m.campaignDelay()
	m.stepInner(election.Input{Kind: election.Campaign, Now: m.now, Peer: m.deadCoordinator, Term: term}, out)
}

// majorityAlive reports whether enough members seem alive to grant the office.
func (m *Machine) majorityAlive() bool {
	alive := 0
	for _, other := range m.roster.Ring() {
		if !m.detector.Suspects(other.ID) {
			alive++
		}
	}
	return alive >= m.roster.Majority()
}

// claim asks for the office after an election was won. In Available mode that
// waits while someone else visibly holds it (see coordinatorLost): whoever started
// the election may be the one who is cut off. Otherwise the members know whom
// they have granted.
func (m *Machine) claim(term election.Term, out *election.Output) {
	if m.coordinator != election.None && m.cfg.Mode == Available {
		return
	}
	m.wonTerm = term
	if !m.canStand() {
		return
	}
	if m.role == candidate {
		m.releaseGrants(out)
	}
	if term <= m.ledger.HighestGranted() && m.ledger.Holder(m.now) != m.incarnation() {
		// Not even this process could grant that: it was won in a term that may
		// have been held before.
		m.role, m.claimUntil, m.beatAt = follower, election.Never, election.Never
		m.campaignAt = m.now
		return
	}
	m.role, m.term = candidate, term
	// Nobody grants a term that the clock doesn't read yet.
	m.claimUntil, m.campaignAt = max(m.now, m.cfg.Clock.Due(term))+m.claimTimeout(), election.Never
	m.support.Clear()
	for i := range m.peers {
		m.peers[i].refusedClaim = false
	}
	m.updateWatch()
	m.heartbeat(out)
}

// beat asks for grants or renews them, and tells everyone who leads.
func (m *Machine) heartbeat(out *election.Output) {
	m.beatAt = m.now + m.cfg.Heartbeat
	if m.cfg.Mode == Available {
		if due := m.cfg.Clock.Due(m.term); m.role == candidate && m.now < due {
			m.beatAt = due
			return
		}
	} else {
		m.requestOwnGrant()
	}
	m.acquireIfGranted(out)
	if m.role == follower {
		return
	}
	m.beatAt = m.now + m.cfg.Heartbeat
	m.sendBeats(out)
}

// requestOwnGrant asks this process itself.
func (m *Machine) requestOwnGrant() {
	answer := m.ledger.Handle(m.grantRequest(), m.roster.Version, m.now)
	m.peers[m.cfg.Self].refusedClaim = answer == grants.TermTooLow
	if answer == grants.Granted {
		m.support.Add(m.cfg.Self, m.now)
		m.support.RecordAdoption(m.cfg.Self, m.ledger.ReportedVersion(m.roster.Version, m.now), m.ledger.HighestGrantedExcept(m.incarnation(), m.term))
	}
}

func (m *Machine) incarnation() grants.Holder { return grants.Holder{ID: m.cfg.Self, Life: m.cfg.Life} }

func (m *Machine) grantRequest() grants.Request {
	return grants.Request{
		Holder: m.incarnation(),
		Term:   m.term, Held: m.role >= holder, Version: m.roster.Version, Sent: m.now,
	}
}

func (m *Machine) sendBeats(out *election.Output) {
	held := m.role >= holder
	m.eachMember(func(id election.ID) {
		if id == m.cfg.Self {
			return
		}
		beat := election.Message{Kind: election.Beat, From: m.cfg.Self, To: id, Term: m.term, Subject: m.cfg.Self}
		beat.Hold = election.Hold{Sent: m.now, Version: m.roster.Version, Held: held}
		if held {
			beat.List = m.absent()
		}
		out.Send = append(out.Send, beat)
	})
}

// absent are those whom no election should wait for: the suspects, and behind a
// None those who don't stand. The coordinator alone hears from everyone.
func (m *Machine) absent() []election.ID {
	absent := m.detector.All().Clone()
	suspects := len(absent)
	for id := range m.peers {
		if m.peers[id].ineligible && !m.detector.Suspects(election.ID(id)) {
			if len(absent) == suspects {
				absent = append(absent, election.None)
			}
			absent = append(absent, election.ID(id))
		}
	}
	return absent
}

// secure takes the office as soon as the grants suffice.
func (m *Machine) acquireIfGranted(out *election.Output) {
	if m.role != candidate || m.now >= m.until() {
		return
	}
	if m.term <= m.support.Floor() && m.cfg.Mode != Available {
		// A tenure under an older list may have had this term, or a higher one.
		m.abandonClaim(out)
		m.campaignAt = m.now
		return
	}
	m.role, m.claimUntil = holder, election.Never
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

// granted counts a grant, and looks whether a higher process is ready.
func (m *Machine) handleGrant(msg *election.Message, out *election.Output) {
	m.recordAnswer(msg)
	if m.role == follower || msg.Term != m.term || msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	if m.cfg.Mode != Available {
		m.peers[msg.From].refusedClaim = false
		m.support.Add(msg.From, min(msg.Hold.Sent, m.now)) // nobody can have been asked later than now
		m.acquireIfGranted(out)
	}
	if m.role == holder && m.roster.Outranks(msg.From, m.cfg.Self) {
		m.considerHandOver(out)
	}
}

// denied counts a refusal. When no majority can be had in this term any more,
// the next election uses a higher one; so does a holder in Available mode of
// whom others have followed a successor that is gone.
func (m *Machine) handleDeny(msg *election.Message, out *election.Output) {
	m.recordAnswer(msg)
	if m.cfg.Mode == Available && m.role >= holder && msg.Term > m.term {
		m.loseTenure(out)
		m.campaignAt = m.now
		return
	}
	if m.role != candidate || msg.Term < m.term || msg.Hold.RequesterLife != m.cfg.Life {
		return
	}
	m.peers[msg.From].refusedClaim = true
	if m.possibleGrants() < m.roster.Majority() {
		m.abandonClaim(out)
		m.campaignAt = m.now
	}
}

// open is how many members haven't refused the present claim for good.
func (m *Machine) possibleGrants() (n int) {
	for _, other := range m.roster.Ring() {
		if !m.peers[other.ID].refusedClaim {
			n++
		}
	}
	return n
}

// recordAnswer takes notice of what every answer to a BEAT says.
func (m *Machine) recordAnswer(msg *election.Message) {
	m.highestTerm = max(m.highestTerm, msg.Term)
	m.support.RecordAdoption(msg.From, msg.Hold.Version, msg.Hold.HighestGranted)
	p := &m.peers[msg.From]
	standing := msg.Hold.Ready && msg.Hold.Version == m.roster.Version
	if standing && !p.ready {
		p.readySince = m.now
	}
	p.ready = standing
}

// claimTimedOut ends a claim that took too long. The highest process keeps its term as
// long as a majority answers: members whose clocks are behind grant it as soon
// as they have come that far, and never would if it went on to a newer one.
func (m *Machine) claimTimedOut(out *election.Output) {
	refused := m.possibleGrants() < m.roster.Len()
	if m.role == candidate && m.coordinator == election.None && m.campaignDelay() == 0 && !refused && m.majorityAlive() {
		m.claimUntil = m.now + m.claimTimeout()
		return
	}
	m.abandonClaim(out)
}

// abandon gives a claim up.
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
	m.campaignAt = m.now + m.cfg.Heartbeat + m.campaignDelay()
}

// release gives back what the members have granted in this term.
func (m *Machine) releaseGrants(out *election.Output) {
	m.ledger.Release(m.incarnation(), m.term, m.now)
	m.support.Clear()
	m.sendResigned(election.None, out)
}

func (m *Machine) sendResigned(successor election.ID, out *election.Output) {
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			out.Send = append(out.Send, election.Message{
				Kind: election.Resigned, From: m.cfg.Self, To: id, Term: m.term, Subject: successor,
			})
		}
	})
}
