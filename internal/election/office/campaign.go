package office

import "github.com/conclave-dev/conclave/internal/election"

// nextTerm is the term that this process uses next: the lowest one that a majority could
// grant or, if that is unknown, the next one after all that it has seen. Members whose
// clocks are behind can't grant the highest terms. In Available mode it is one that this
// process need not wait for, unless it has claimed that itself.
func (m *Machine) nextTerm() election.Term {
	least := max(m.claimedTerm, m.ledger.HighestGranted(), m.support.Floor())
	if m.usable(m.coordinatorTerm) {
		least = max(least, m.coordinatorTerm)
	}
	if m.cfg.Mode == Available {
		return max(least, min(m.highestTerm, m.cfg.Clock.Ceiling(m.now)-1)) + 1
	}
	if bound, known := m.majorityBound(); known {
		return max(least, bound) + 1
	}
	return max(least, m.highestTerm) + 1
}

// termOfWin is the term that this process claims after it has won an election: that of the election, unless a lower one
// suffices. If several attempts have failed, it is above what a majority may have granted. Not before: each reading of
// a clock has few terms, which others may need.
func (m *Machine) termOfWin(won election.Term) election.Term {
	term := min(max(won, m.support.Floor()+1), m.nextTerm())
	if m.vacancy.attempts < maxAttempts || m.cfg.Mode == Available {
		return term
	}
	if bound, known := m.majorityBound(); known {
		term = max(term, bound+1)
	}
	return term
}

// campaignDelay is how long this process waits for an election of the processes
// above it that seem alive. When it has waited for them once in this vacancy, it
// waits for two heartbeats at most: in a large group the sum would be a long time.
func (m *Machine) campaignDelay() election.Tick {
	above, below := election.Tick(0), election.Tick(0)
	for i, other := range m.roster.Ranked() {
		switch {
		case other.ID == m.cfg.Self || !m.precedes(other.ID, m.cfg.Self) || !m.awaits(other):
		case i < m.roster.Rank(m.cfg.Self):
			above++
		default: // this process flaps
			below++
		}
	}
	yields := min(below*m.cfg.Stagger, 2*m.cfg.Heartbeat)
	if m.cfg.Mode != Available && (m.vacancy.attempts > 0 || m.vacancy.preVoting) {
		return min(above*m.cfg.Stagger+yields, 2*m.cfg.Heartbeat)
	}
	return above*m.cfg.Stagger + yields
}

// campaign starts an election, unless this process couldn't hold the office.
func (m *Machine) campaign(out *election.Output) {
	m.vacancy.campaignAt = election.Never
	m.recovery.finish()
	if m.coordinator != election.None || !m.Eligible() || !m.isNamedSuccessor() && m.awaitBound() {
		return
	}
	term := m.nextTerm()
	if term > election.MaxTerm {
		return
	}
	if due := m.cfg.Clock.Due(term); m.now < due {
		m.vacancy.campaignAt = due + m.campaignDelay() // processes with equal clocks must not campaign at once
		if recheck := m.now + m.cfg.Heartbeat; due > recheck {
			m.vacancy.campaignAt = recheck // answers of the other members may show that a lower term suffices
		}
		return
	}
	named := m.isNamedSuccessor()
	trusted := m.vacancy.proven && m.vacancy.attempts == 0 && m.majorityAlive()
	if !trusted && !m.preVoteSucceeds() {
		if !m.vacancy.preVoting {
			m.vacancy.preVoting = true
			m.probes.at = m.now // the next probes could be a heartbeat away
		}
		if m.cfg.Mode == Available {
			m.vacancy.campaignAt = m.witnessesUntil()
		}
		return
	}
	if m.cfg.Mode == Available {
		m.vacancy.preVoting = false
	}
	m.vacancy.attempt()
	m.vacancy.campaignAt = m.now + m.cfg.SuspicionTimeout + m.campaignDelay()
	if named || m.vacancy.attempts > 1 || m.precedesHigherRank() {
		m.claim(term, out)
		return
	}
	m.stepInner(election.Input{Kind: election.Campaign, Now: m.now, Peer: m.deadCoordinator(), Term: term}, out)
}
