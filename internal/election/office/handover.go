package office

import "github.com/conclave-dev/conclave/internal/election"

// considerHandOver begins a hand-over if a higher process is ready for the office.
// If one will have been ready for long enough later, it sets the deadline for the
// next check.
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

// startDraining requests the application to stop. The office goes to the successor
// when the application has stopped, or when the drain timeout has passed.
func (m *Machine) startDraining(successor election.ID, out *election.Output) {
	m.role, m.successor = draining, successor
	m.drainUntil, m.handOverAt = m.now+m.cfg.DrainTimeout, election.Never
	out.Emit(election.StopRequested, m.term, successor)
}

// resign gives up the office.
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
		m.becomeIneligible(steppedDown, out)
	}
	m.campaignAt = m.now + m.cfg.Stagger + m.campaignDelay()
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

// stepDown hands the office over to peer or, if peer is None, to the highest other
// process that is ready.
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
