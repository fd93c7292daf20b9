package office

import "github.com/conclave-dev/conclave/internal/election"

// adopt switches to a new member list.
func (m *Machine) adopt(roster *election.Roster, out *election.Output) {
	if roster == nil || roster.Version < m.roster.Version {
		out.Emit(election.Refused, m.highestTerm, election.None)
		return
	}
	if roster.Version == m.roster.Version {
		m.adoptRevision(roster)
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
	m.useFloor(roster)
	m.growPeers()
	m.detector.Retain(m.isMember)
	for i := range m.peers {
		m.peers[i].ready, m.peers[i].boundCounts = false, false
	}
	m.stepInner(election.Input{Kind: election.Adopt, Now: m.now, Roster: roster}, out)
	if m.role == Follower && m.coordinator != election.None && !m.isMember(m.coordinator) {
		m.coordinatorLost(election.None, true, out) // its silence would not be detected
	}
	if m.role == Holder && roster.Priority(m.cfg.Self) == 0 {
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

// adoptRevision switches to a later publication of the present list, in which more
// members have departed and the floor is higher.
func (m *Machine) adoptRevision(roster *election.Roster) {
	if roster.Floor < m.roster.Floor {
		return // an earlier publication
	}
	m.roster = roster
	m.support.AdoptRevision(roster)
	m.useFloor(roster)
}

func (m *Machine) useFloor(roster *election.Roster) {
	clock := m.cfg.Clock
	clock.ListFloor = max(clock.ListFloor, roster.Floor)
	for i := range m.peers {
		if p := &m.peers[i]; p.ceiling <= clock.ListFloor {
			p.ceiling = 0
		}
	}
	m.setClock(clock)
}

// correctClock replaces the term clock after the wall clock has changed. It may also go
// back: this incarnation remembers what it has granted and used. A campaign may have
// waited for the clock.
func (m *Machine) correctClock(wall election.Epoch) {
	m.clockCorrected = true
	m.setClock(m.cfg.Clock.Corrected(wall, m.now))
	if m.role == Follower && m.coordinator == election.None {
		m.vacancy.campaignAt = min(m.vacancy.campaignAt, m.now+m.campaignDelay())
	}
}

func (m *Machine) setClock(clock election.TermClock) {
	m.cfg.Clock = clock
	m.ledger.SetClock(clock)
}
