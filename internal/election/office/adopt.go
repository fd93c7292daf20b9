package office

import "github.com/conclave-dev/conclave/internal/election"

// adopt switches to a new member list.
func (m *Machine) adopt(roster *election.Roster, out *election.Output) {
	if roster == nil || roster.Version < m.roster.Version {
		out.Emit(election.Refused, m.highestTerm, election.None)
		return
	}
	if roster.Version == m.roster.Version {
		m.adoptPublication(roster, out)
		return
	}
	if m.role == Candidate {
		m.abandonClaim(out)
	}
	m.resetTenuresOfChanged(roster)
	m.roster = roster
	m.admitDrain()
	m.ledger.Adopt(roster.Version)
	m.support.Adopt(roster)
	m.growPeers()
	m.detector.Retain(m.isMember)
	for i := range m.peers {
		m.peers[i].ready = false
	}
	m.stepInner(election.Input{Kind: election.Adopt, Roster: roster}, out)
	if m.role == Follower && m.coordinator != election.None && !m.isMember(m.coordinator) {
		m.coordinatorLost(election.None, true, out) // its silence would not be detected
	}
	m.updateForgetful(out)
	if m.role == Holder && (roster.Priority(m.cfg.Self) == 0 || m.Forgetful()) {
		m.becomeDraining(election.None, out)
	}
	switch {
	case m.role >= Holder:
		m.updateWatch()
		m.beatAt = m.now
	case m.coordinator == election.None:
		m.vacancy.campaignAt = min(m.vacancy.campaignAt, m.now+m.campaignDelay())
	case m.mayTakeOver():
		m.probes.at = m.now
	}
}

// adoptPublication switches to a later publication of the present list, in which more
// members have departed, or have an identity.
func (m *Machine) adoptPublication(roster *election.Roster, out *election.Output) {
	if roster.Publication() < m.roster.Publication() {
		return
	}
	m.roster = roster
	m.support.AdoptPublication(roster)
	m.updateForgetful(out)
}

// reserve records that a higher term is on the disk. A claim may have waited for that.
func (m *Machine) reserve(term election.Term) {
	m.ledger.Reserve(term)
	if m.role == Candidate && m.beatAt == election.Never {
		m.beatAt = m.now
	}
}
