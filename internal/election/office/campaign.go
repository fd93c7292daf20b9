package office

import "github.com/conclave-dev/conclave/internal/election"

// nextTerm is the term that this process uses next: the lowest one of its list that a majority could grant or, if that
// is unknown, the next one after those in use. It may be of a newer list, which this process doesn't have yet: see
// claimable. The majority needn't include this process, which may have forgotten what it granted.
func (s *state) nextTerm() election.Term {
	if bound, known := s.majorityBound(); known {
		return max(election.FirstTerm(s.roster.Version), s.claimedTerm, bound) + 1
	}
	if s.cfg.Mode == Available {
		return max(s.termInUse(), s.claimedTerm, s.highestTerm) + 1
	}
	return max(s.termInUse(), s.claimedTerm) + 1
}

// claimable reports whether this process may claim a term: one of its list.
func (s *state) claimable(term election.Term) bool { return term.Version() == s.roster.Version }

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
	if m.coordinator != election.None || !m.Eligible() {
		return
	}
	term := m.nextTerm()
	if !m.claimable(term) {
		m.vacancy.campaignAt = m.now + m.cfg.Heartbeat // the next list is on its way
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
	m.stepInner(election.Input{Kind: election.Campaign, Peer: m.deadCoordinator(), Term: term}, out)
}
