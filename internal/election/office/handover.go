package office

import "github.com/conclave-dev/conclave/internal/election"

// considerHandOver begins a hand-over if a higher process is ready for the
// office, or sets the moment to look again.
func (m *Machine) considerHandOver(out *election.Output) {
	m.handOverAt = election.Never
	if m.role != holding || m.cfg.Policy == NeverPreempt {
		return
	}
	stable := m.cfg.Stable
	if m.cfg.Policy == Always {
		stable = 0
	}
	for _, other := range m.roster.Ranked()[:m.roster.Rank(m.cfg.Self)] {
		p := &m.peers[other.ID]
		if !p.standing || m.detector.Suspects(other.ID) {
			continue
		}
		if at := max(p.standingSince+stable, p.notBefore); m.now < at {
			m.handOverAt = min(m.handOverAt, at)
			continue
		}
		m.drain(other.ID, out)
		return
	}
}

// drain tells the application to stop; the office goes to the successor when it
// has, or has had the time to.
func (m *Machine) drain(successor election.ID, out *election.Output) {
	m.role, m.successor = draining, successor
	m.drainUntil, m.handOverAt = m.now+m.cfg.Drain, election.Never
	out.Emit(election.StopRequested, m.term, successor)
}

// resign gives the office up.
func (m *Machine) resign(successor election.ID, out *election.Output) {
	if m.role < holding {
		m.drainUntil = election.Never
		return
	}
	out.Emit(election.OfficeResigned, m.term, successor)
	m.tellResigned(successor, out)
	m.ledger.Release(m.holder(), m.term, m.now)
	if m.known(successor) {
		m.peers[successor].notBefore = m.now + 4*m.patience()
	}
	stepsDown := m.leaving
	m.vacate(out)
	if stepsDown {
		m.standAgain = m.now + max(m.cfg.Stable, m.patience())
		m.retreat(out)
	}
	m.campaignAt = m.now + m.cfg.Stagger + m.stagger()
}

// lose ends a tenure that could not be renewed.
func (m *Machine) lose(out *election.Output) {
	out.Emit(election.TenureLost, m.term, m.cfg.Self)
	m.vacate(out)
	m.campaignAt = m.now + m.cfg.Patience + m.stagger()
}

// expire ends a tenure whose grants have run out.
func (m *Machine) expire(out *election.Output) {
	if m.role >= holding && m.now >= m.until() {
		m.lose(out)
	}
}

// vacate makes a process that held the office a follower of nobody.
func (m *Machine) vacate(out *election.Output) {
	m.role, m.token, m.successor, m.leaving = follower, 0, election.None, false
	m.beatAt, m.drainUntil, m.handOverAt = election.Never, election.Never, election.Never
	m.support.Clear()
	m.leader, m.heir = election.None, false
	m.passOver(out)
	m.watch()
	m.innerStep(election.Input{Kind: election.Follow, Now: m.now, Term: m.leaderTerm}, out)
}

// stepDown hands the office to peer, or to the best other process if peer is
// None.
func (m *Machine) stepDown(peer election.ID, out *election.Output) {
	if peer == election.None {
		peer = m.bestOther()
	}
	if m.role != holding || peer == election.None || !m.known(peer) || !m.peers[peer].standing {
		out.Emit(election.Refused, m.term, peer)
		return
	}
	m.leaving = true
	m.drain(peer, out)
}

// bestOther is the highest other process that is ready for the office, or None.
func (m *Machine) bestOther() election.ID {
	for _, other := range m.roster.Ranked() {
		if other.ID != m.cfg.Self && m.peers[other.ID].standing && !m.detector.Suspects(other.ID) {
			return other.ID
		}
	}
	return election.None
}

// withdraw takes this process out of the running: its application is dead, so
// there is nothing to wait for.
func (m *Machine) withdraw(out *election.Output) {
	m.appDead = true
	m.retreat(out)
	switch m.role {
	case holding, draining:
		m.resign(m.bestOther(), out)
	case claiming:
		m.abandon(out)
	case follower:
	}
}

func (m *Machine) retreat(out *election.Output) {
	m.withdrawn, m.aside = true, false
	m.innerStep(election.Input{Kind: election.BecomeIneligible, Now: m.now}, out)
}

// revive ends a withdrawal: the application lives.
func (m *Machine) revive(out *election.Output) {
	m.appDead = false
	m.stand(out)
}

// stand puts this process back into the running, if nothing keeps it out.
func (m *Machine) stand(out *election.Output) {
	if !m.withdrawn || m.appDead || m.standAgain != election.Never {
		return
	}
	m.withdrawn, m.aside = false, false
	m.innerStep(election.Input{Kind: election.BecomeEligible, Now: m.now}, out)
	if m.role == follower && m.leader == election.None {
		m.campaignAt = min(m.campaignAt, m.now+m.stagger())
	}
}

// adopt goes over to a new member list.
func (m *Machine) adopt(roster *election.Roster, out *election.Output) {
	if roster == nil || roster.Version < m.roster.Version {
		out.Emit(election.Refused, m.seen, election.None)
		return
	}
	if roster.Version == m.roster.Version {
		m.support.Depart(roster.Departed, m.cfg.Clock.Ceiling(m.now))
		return
	}
	if m.role == claiming {
		m.abandon(out)
	}
	m.roster = roster
	m.ledger.Adopt(roster.Version)
	m.support.Adopt(roster, m.cfg.Clock.Ceiling(m.now))
	m.fit()
	m.detector.Keep(m.known)
	for i := range m.peers {
		m.peers[i].standing = false
	}
	m.innerStep(election.Input{Kind: election.Adopt, Now: m.now, Roster: roster}, out)
	if m.role == follower && m.leader != election.None && !m.known(m.leader) {
		m.leaderLost(election.None, out) // nobody would notice its silence
	}
	switch {
	case m.role == holding && roster.Priority(m.cfg.Self) == 0:
		m.drain(m.bestOther(), out)
	case m.role >= holding:
		m.watch()
		m.beatAt = m.now
	case m.leader == election.None:
		m.campaignAt = min(m.campaignAt, m.now+m.stagger())
	case m.waitsAbove():
		m.hailAt = m.now
	}
}
