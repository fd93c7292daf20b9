package office

import "github.com/conclave-dev/conclave/internal/election"

// considerHandOver begins a hand-over if a higher process is ready for the
// office, or sets the moment to look again.
func (m *Machine) considerHandOver(out *election.Output) {
	m.handOverAt = election.Never
	if m.role != holder || m.cfg.Policy == NeverPreempt {
		return
	}
	stable := m.cfg.StablePeriod
	if m.cfg.Policy == Always {
		stable = 0
	}
	for _, other := range m.roster.Ranked()[:m.roster.Rank(m.cfg.Self)] {
		p := &m.peers[other.ID]
		if !p.ready || m.detector.Suspects(other.ID) {
			continue
		}
		if at := max(p.readySince+stable, p.notBefore); m.now < at {
			m.handOverAt = min(m.handOverAt, at)
			continue
		}
		m.startDraining(other.ID, out)
		return
	}
}

// drain tells the application to stop; the office goes to the successor when it
// has, or has had the time to.
func (m *Machine) startDraining(successor election.ID, out *election.Output) {
	m.role, m.successor = draining, successor
	m.drainUntil, m.handOverAt = m.now+m.cfg.DrainTimeout, election.Never
	out.Emit(election.StopRequested, m.term, successor)
}

// resign gives the office up.
func (m *Machine) resign(successor election.ID, out *election.Output) {
	if m.role < holder {
		m.drainUntil = election.Never
		return
	}
	out.Emit(election.OfficeResigned, m.term, successor)
	m.sendResigned(successor, out)
	m.ledger.Release(m.incarnation(), m.term, m.now)
	if m.isMember(successor) {
		m.peers[successor].notBefore = m.now + 4*m.claimTimeout()
	}
	stepsDown := m.stepDownRequested
	m.leaveOffice(out)
	if stepsDown {
		m.eligibleAgainAt = m.now + max(m.cfg.StablePeriod, m.claimTimeout())
		m.becomeIneligible(out)
	}
	m.campaignAt = m.now + m.cfg.Stagger + m.campaignDelay()
}

// lose ends a tenure that could not be renewed.
func (m *Machine) loseTenure(out *election.Output) {
	out.Emit(election.TenureLost, m.term, m.cfg.Self)
	m.leaveOffice(out)
	m.campaignAt = m.now + m.cfg.SuspicionTimeout + m.campaignDelay()
}

// expire ends a tenure whose grants have run out.
func (m *Machine) expireTenure(out *election.Output) {
	if m.role >= holder && m.now >= m.until() {
		m.loseTenure(out)
	}
}

// vacate makes a process that held the office a follower of nobody.
func (m *Machine) leaveOffice(out *election.Output) {
	m.role, m.token, m.successor, m.stepDownRequested = follower, 0, election.None, false
	m.beatAt, m.drainUntil, m.handOverAt = election.Never, election.Never, election.Never
	m.support.Clear()
	m.coordinator, m.namedSuccessor = election.None, false
	m.skipIneligible(out)
	m.updateWatch()
	m.stepInner(election.Input{Kind: election.Follow, Now: m.now, Term: m.coordinatorTerm}, out)
}

// stepDown hands the office to peer, or to the best other process if peer is
// None.
func (m *Machine) stepDown(peer election.ID, out *election.Output) {
	if peer == election.None {
		peer = m.highestReadyPeer()
	}
	if m.role != holder || peer == election.None || !m.isMember(peer) || !m.peers[peer].ready {
		out.Emit(election.Refused, m.term, peer)
		return
	}
	m.stepDownRequested = true
	m.startDraining(peer, out)
}

// highestReadyPeer is the highest other process that is ready for the office, or None.
func (m *Machine) highestReadyPeer() election.ID {
	for _, other := range m.roster.Ranked() {
		if other.ID != m.cfg.Self && m.peers[other.ID].ready && !m.detector.Suspects(other.ID) {
			return other.ID
		}
	}
	return election.None
}

// withdraw takes this process out of the running: its application is dead, so
// there is nothing to wait for.
func (m *Machine) applicationDied(out *election.Output) {
	m.appDead = true
	m.becomeIneligible(out)
	switch m.role {
	case holder, draining:
		m.resign(m.highestReadyPeer(), out)
	case candidate:
		m.abandonClaim(out)
	case follower:
	}
}

func (m *Machine) becomeIneligible(out *election.Output) {
	m.withdrawn, m.aside = true, false
	m.stepInner(election.Input{Kind: election.BecomeIneligible, Now: m.now}, out)
}

// revive ends a withdrawal: the application lives.
func (m *Machine) applicationRecovered(out *election.Output) {
	m.appDead = false
	m.becomeEligible(out)
}

// stand puts this process back into the running, if nothing keeps it out.
func (m *Machine) becomeEligible(out *election.Output) {
	if !m.withdrawn || m.appDead || m.eligibleAgainAt != election.Never {
		return
	}
	m.withdrawn, m.aside = false, false
	m.stepInner(election.Input{Kind: election.BecomeEligible, Now: m.now}, out)
	if m.role == follower && m.coordinator == election.None {
		m.campaignAt = min(m.campaignAt, m.now+m.campaignDelay())
	}
}

// adopt goes over to a new member list.
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
		m.coordinatorLost(election.None, out) // nobody would notice its silence
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
