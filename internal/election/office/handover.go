package office

import "github.com/conclave-dev/conclave/internal/election"

// considerHandOver begins a hand-over if a higher process is ready for the office.
// If one will have been ready for long enough later, it sets the deadline for the
// next check.
func (m *Machine) considerHandOver(out *election.Output) {
	m.tenure.handOverAt = election.Never
	if m.role != Holder || m.cfg.Policy == NeverPreempt {
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
			m.tenure.handOverAt = min(m.tenure.handOverAt, at)
			continue
		}
		m.becomeDraining(other.ID, out)
		return
	}
}

// resign gives up the office.
func (m *Machine) resign(successor election.ID, out *election.Output) {
	out.Emit(election.OfficeResigned, m.term, successor)
	m.sendResigned(successor, out)
	m.ledger.Release(m.incarnation(), m.term, m.now)
	if m.isMember(successor) {
		m.peers[successor].notBefore = m.now + 4*m.claimTimeout()
	}
	stepsDown := m.tenure.stepDownRequested
	m.leaveOffice(out)
	if stepsDown {
		m.eligibleAgainAt = m.now + max(m.cfg.StablePeriod, m.claimTimeout())
		m.becomeIneligible(steppedDown, out)
	}
	m.vacancy.campaignAt = m.now + m.cfg.Stagger + m.campaignDelay()
}

func (m *Machine) sendResigned(successor election.ID, out *election.Output) {
	abandoned := m.role == Candidate
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			resigned := election.Message{Kind: election.Resigned, From: m.cfg.Self, To: id, Term: m.term, Subject: successor}
			resigned.Hold.Held = abandoned
			out.Send = append(out.Send, resigned)
		}
	})
}

// stepDown hands the office over to peer or, if peer is None, to the highest other
// process that is ready.
func (m *Machine) stepDown(peer election.ID, out *election.Output) {
	peer = m.successor(peer)
	if peer == election.None || !m.isMember(peer) || !m.peers[peer].ready {
		out.Emit(election.Refused, m.term, peer)
		return
	}
	m.becomeDraining(peer, out)
	m.tenure.stepDownRequested = true
}

// refuseStepDown: only a holder can step down.
func (m *Machine) refuseStepDown(peer election.ID, out *election.Output) {
	out.Emit(election.Refused, m.term, m.successor(peer))
}

// successor returns the named process or, if that is None, the highest other process
// that is ready.
func (m *Machine) successor(named election.ID) election.ID {
	if named != election.None {
		return named
	}
	return m.highestReadyPeer()
}

// highestReadyPeer is the highest other process that is ready for the office, or
// None.
func (m *Machine) highestReadyPeer() election.ID {
	for _, other := range m.roster.Ranked() {
		if other.ID != m.cfg.Self && m.peers[other.ID].ready && !m.detector.Suspects(other.ID) {
			return other.ID
		}
	}
	return election.None
}
