package office

import "github.com/conclave-dev/conclave/internal/election"

// adopt switches to a new member list.
func (m *Machine) adopt(roster *election.Roster, out *election.Output) {
	if roster == nil || roster.Version < m.roster.Version {
		out.Emit(election.Refused, m.highestTerm, election.None)
		return
	}
	if roster.Version == m.roster.Version {
		m.support.MarkDeparted(roster.Departed, m.cfg.Clock.Ceiling(m.now))
		return
	}
	if m.role == candidate {
		m.abandonClaim(out)
	}
	m.roster = roster
	m.ledger.Adopt(roster.Version)
	m.support.Adopt(roster, m.cfg.Clock.Ceiling(m.now))
	m.growPeers()
	m.detector.Retain(m.isMember)
	for i := range m.peers {
		m.peers[i].ready = false
	}
	m.stepInner(election.Input{Kind: election.Adopt, Now: m.now, Roster: roster}, out)
	if m.role == follower && m.coordinator != election.None && !m.isMember(m.coordinator) {
		m.coordinatorLost(election.None, true, out) // its silence would not be detected
	}
	switch {
	case m.role == holder && roster.Priority(m.cfg.Self) == 0:
		m.startDraining(m.highestReadyPeer(), out)
	case m.role >= holder:
		m.updateWatch()
		m.beatAt = m.now
	case m.coordinator == election.None:
		m.campaignAt = min(m.campaignAt, m.now+m.campaignDelay())
	case m.mayTakeOver():
		m.probeAt = m.now
	}
}
