package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// forgot reports whether this process lost its memory and hasn't recovered yet from
// the answers of others what it may have granted before. In Available mode there are no
// grants, so it always relies on its clock.
func (m *Machine) forgot() bool { return m.cfg.Mode != Available && m.ledger.Recovering() }

// recordReport records what a member reports with each answer: its list, its clock, and what it may have granted. For
// the recovery, only answers to probes of this incarnation count that it sent after the leases of all earlier grants
// had expired. The member must use the same list: under a newer one, tenures need no majority of this one. All other
// answers may report less: for example, a late GRANT to an earlier incarnation doesn't count what that was granted.
func (m *Machine) recordReport(answer *election.Message) {
	p := &m.peers[answer.From]
	p.answersUntil, p.bound = m.now+m.probeTimeout(), answer.Hold.HighestGranted
	if answer.Hold.Ceiling != 0 || answer.Kind == election.Probe { // a GRANT doesn't tell it, nor does an older release
		p.ceiling, p.ceilingAt = answer.Hold.Ceiling, m.now
	}
	m.support.RecordAdoption(answer.From, answer.Hold.Version, answer.Hold.HighestGranted)
	if answer.Kind == election.Deny {
		p.bound = max(p.bound, answer.Term)
	}
	if m.cfg.Mode == Available || !m.ledger.Forgot() {
		return
	}
	if answer.Hold.Roster == m.roster.Version && m.answersProbe(answer, m.ledger.RecoveryStart()) {
		p.recoveryBound, p.boundCounts = answer.Hold.HighestGranted, true
	}
	m.recoverBound()
}

// answersProbe reports whether a message answers a probe that this incarnation sent at
// the moment from or later, and not too long ago.
func (m *Machine) answersProbe(answer *election.Message, from election.Tick) bool {
	sent := answer.Hold.Sent
	return answer.Kind == election.Probe && answer.Hold.Held && answer.Hold.RequesterLife == m.cfg.Life &&
		max(from, m.now-m.cfg.SuspicionTimeout) <= sent && sent <= m.now
}

// recoverBound ends the recovery once enough members have answered.
func (m *Machine) recoverBound() {
	bound, ok := grants.BoundOfOthers(m.roster, m.cfg.Self, m.countedBound)
	if !ok {
		return
	}
	bound = max(bound, m.support.Floor())
	if !m.support.Settled() {
		previous, ok := grants.BoundOfOthers(m.roster.Previous, m.cfg.Self, m.countedBoundOrDeparted)
		if !ok {
			return
		}
		bound = max(bound, previous)
	}
	m.ledger.Recover(bound, m.now)
	if m.vacancy.awaitsBound && m.vacancy.campaignAt != election.Never && !m.forgot() && m.allCount() {
		m.vacancy.awaitsBound = false
		m.vacancy.campaignAt = m.now + m.campaignDelay()
	}
}

// allCount reports whether the bounds of all other members that seem alive count, so
// that no further answer will lower the bound of this process.
func (m *Machine) allCount() bool {
	for _, other := range m.roster.Ring() {
		if other.ID != m.cfg.Self && !m.peers[other.ID].boundCounts && !m.detector.Suspects(other.ID) {
			return false
		}
	}
	return true
}

// awaitBound postpones a campaign of a process that hasn't recovered, and reports
// whether it did: a lower term may do in a moment. A member that granted the higher term
// could not grant a lower one afterwards.
func (m *Machine) awaitBound() bool {
	alive := func(id election.ID) (election.Term, bool) { return 0, !m.detector.Suspects(id) }
	if _, enough := grants.BoundOfOthers(m.roster, m.cfg.Self, alive); !enough || !m.forgot() ||
		m.vacancy.boundWaits >= maxBoundWaits {
		return false
	}
	if m.now >= m.ledger.RecoveryStart() {
		m.vacancy.boundWaits++
	}
	m.vacancy.awaitsBound = true
	m.vacancy.campaignAt = max(m.now, m.ledger.RecoveryStart()) + m.cfg.Heartbeat
	return true
}

// maxBoundWaits is for how many heartbeats a process that knows no coordinator waits
// for its recovery.
const maxBoundWaits = 2

func (m *Machine) countedBound(id election.ID) (election.Term, bool) {
	return m.peers[id].recoveryBound, m.peers[id].boundCounts
}

func (m *Machine) countedBoundOrDeparted(id election.ID) (election.Term, bool) {
	if slices.Contains(m.roster.Departed, id) {
		return m.roster.Floor, true
	}
	return m.countedBound(id)
}

// majorityBound returns the lowest term that a majority of every list in force has not
// exceeded. It returns false if the recent answers don't tell.
func (m *Machine) majorityBound() (election.Term, bool) {
	recent := func(id election.ID) (election.Term, bool) {
		if id == m.cfg.Self {
			return m.ledger.HighestGranted(), true
		}
		return m.peers[id].bound, m.peers[id].answersUntil > m.now
	}
	bound, ok := grants.LowestBound(m.roster, m.roster.Majority(), recent)
	if !ok || m.support.Settled() {
		return bound, ok
	}
	previous, ok := grants.LowestBound(m.roster.Previous, m.roster.Previous.Majority(), recent)
	return max(bound, previous), ok
}
