package office

import (
	"cmp"

	"github.com/conclave-dev/conclave/internal/election"
)

// considerHandOver begins a hand-over to the highest process that has been ready for the office for long enough. Each
// GRANT of a higher process tells whether it is ready still. Several hand-overs in a row would be short tenures. So
// this process waits for one of even higher rank that will have been ready soon and, in the first heartbeat of a
// tenure, for its answer.
func (m *Machine) considerHandOver(out *election.Output) {
	if m.cfg.Policy == NeverPreempt {
		return
	}
	stable := m.cfg.StablePeriod
	if m.cfg.Policy == Always {
		stable = 0
	}
	begins := m.now < m.tenures.last.since+m.cfg.Heartbeat
	for _, other := range m.roster.Ranked()[:m.roster.Rank(m.cfg.Self)] {
		p := &m.peers[other.ID]
		switch {
		case m.detector.Suspects(other.ID) || p.flaps || m.now < max(p.notBefore, m.tenures.handsOverAt):
		case p.ready && m.now >= p.readySince+stable:
			m.becomeDraining(other.ID, out)
			return
		case p.ready && p.readySince+stable-m.now < m.cfg.longTenure(), !p.ready && begins && !p.ineligible:
			return
		}
	}
}

// resign gives up the office in favor of the successor that was chosen when the hand-over began,
// or of the highest process that is ready now. A hand-over can take an hour.
func (m *Machine) resign(out *election.Output) {
	successor := m.tenure.successor
	if !m.canSucceed(successor) {
		successor = m.highestReadyPeer()
	}
	out.Emit(election.OfficeResigned, m.term, successor)
	m.sendResigned(successor, out)
	m.ledger.Release(m.incarnation(), m.term, m.now)
	if successor != election.None {
		m.peers[successor].notBefore = m.now + 4*m.claimTimeout()
	}
	stepsDown := m.tenure.stepDownRequested
	m.leaveOffice(out)
	m.vacancy.successor = successor
	if stepsDown {
		// The others need a claim for its succession. For longer than that, this process stands back only
		// while another one leads: otherwise a crash of the successor could leave no eligible process.
		m.eligibleAgainAt = m.now + m.claimTimeout()
		m.yieldsUntil = max(m.eligibleAgainAt, m.now+m.cfg.StablePeriod)
		m.becomeIneligible(steppedDown, out)
	}
	m.vacancy.campaignAt = m.now + m.cfg.Stagger + m.campaignDelay()
}

func (m *Machine) sendResigned(successor election.ID, out *election.Output) {
	abandoned := m.role == Candidate
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			resigned := election.Message{Kind: election.Resigned, From: m.cfg.Self, To: id, Term: m.term, Subject: successor}
			resigned.Hold.Held, resigned.Hold.Ready = abandoned, !abandoned && m.ownEnding() == handedOver
			out.Send = append(out.Send, resigned)
		}
	})
}

// stepDown hands the office over to peer or, if peer is None, to the highest other process that is ready.
func (m *Machine) stepDown(peer election.ID, out *election.Output) {
	peer = cmp.Or(peer, m.highestReadyPeer())
	if !m.canSucceed(peer) {
		out.Emit(election.Refused, m.term, peer)
		return
	}
	m.becomeDraining(peer, out)
	m.tenure.stepDownRequested = true
}

// refuseStepDown: only a holder can step down.
func (m *Machine) refuseStepDown(peer election.ID, out *election.Output) {
	out.Emit(election.Refused, m.term, cmp.Or(peer, m.highestReadyPeer()))
}

// highestReadyPeer is the highest other process that is ready for the office, or None. One that flaps comes last.
func (s *state) highestReadyPeer() election.ID {
	best := election.None
	for _, other := range s.roster.Ranked() {
		if s.canSucceed(other.ID) && (best == election.None || s.precedes(other.ID, best)) {
			best = other.ID
		}
	}
	return best
}

// canSucceed reports whether another process is ready for the office.
func (s *state) canSucceed(id election.ID) bool {
	return id != s.cfg.Self && s.roster.Priority(id) > 0 && s.peers[id].ready && !s.detector.Suspects(id)
}
