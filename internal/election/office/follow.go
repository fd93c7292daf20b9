package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// follow recognizes the sender of a BEAT as coordinator.
func (m *Machine) follow(msg *election.Message, out *election.Output) {
	id, term := msg.From, msg.Term
	if m.role >= holder {
		if term < m.term || term == m.term && m.roster.Outranks(m.cfg.Self, id) {
			out.Emit(election.Outdated, term, id)
			return // Available, after a partition: the sender follows this process instead
		}
		m.loseTenure(out)
	}
	switch {
	case term < m.coordinatorTerm:
		out.Emit(election.Outdated, term, id)
		return
	case term == m.coordinatorTerm && m.coordinator != election.None && m.coordinator != id && !m.roster.Outranks(id, m.coordinator):
		return
	}
	m.recognize(id, term, out)
	m.applyAbsent(msg.List, out)
}

// recognize makes a process the coordinator of this one.
func (m *Machine) recognize(id election.ID, term election.Term, out *election.Output) {
	if m.role == candidate {
		m.abandonClaim(out)
	}
	m.campaignAt = election.Never
	m.endVacancy()
	if m.coordinator != id || m.coordinatorTerm != term {
		m.recordSuccession(id, out)
		m.coordinator, m.coordinatorTerm, m.deadCoordinator, m.namedSuccessor = id, term, election.None, false
		m.readmitAll(out)
		m.peers[id].notBefore, m.unacknowledged = 0, 0
		out.Emit(election.Recognized, term, id)
		m.stepInner(election.Input{Kind: election.Follow, Now: m.now, Peer: id, Term: term}, out)
		m.updateWatch()
	}
}

// recordSuccession records the new coordinator. A previous one that hasn't
// resigned is suspected until it sends a sign of life.
func (m *Machine) recordSuccession(by election.ID, out *election.Output) {
	before := m.coordinator
	m.coordinator = by
	if before == election.None || before == by || before == m.cfg.Self || m.peers[before].resignedTerm >= m.coordinatorTerm {
		return
	}
	m.suspect(before, out)
}

// applyAbsent applies the coordinator's list of suspects and ineligible processes:
// see absent. A process from which this one itself has received messages isn't
// suspected: with broken links, the coordinator may be the one that doesn't.
func (m *Machine) applyAbsent(absent []election.ID, out *election.Output) {
	dead, ineligible := absent, []election.ID(nil)
	if i := slices.Index(absent, election.None); i >= 0 {
		dead, ineligible = absent[:i], absent[i+1:]
	}
	for id := range m.peers {
		if id := election.ID(id); id != m.coordinator && id != m.cfg.Self {
			m.peers[id].ineligible = election.IDs(ineligible).Has(id)
		}
	}
	if len(dead) == 0 && len(m.detector.All()) == 0 {
		return
	}
	suspects := election.IDs(dead)
	for _, id := range m.detector.All().Clone() {
		if !suspects.Has(id) {
			m.markAlive(id, out)
		}
	}
	for _, id := range dead {
		if id != m.cfg.Self && id != m.coordinator && m.roster.Has(id) && m.peers[id].heardUntil <= m.now {
			m.suspect(id, out)
		}
	}
}

// coordinatorLost handles the vacancy of the office. If the inner election
// determines that this process is next, the process claims the office; the others
// wait for their campaign delay. The vacancy is proven if the coordinator has ended
// or resigned.
func (m *Machine) coordinatorLost(dead election.ID, proven bool, out *election.Output) {
	m.coordinator, m.deadCoordinator, m.namedSuccessor = election.None, dead, false
	m.beginVacancy(proven, !proven)
	m.skipIneligible(out)
	m.updateWatch()
	if !proven {
		m.probeAt = m.now // the others wait to hear that this process has no coordinator: see preVote
	}
	m.stepInner(election.Input{Kind: election.Follow, Now: m.now, Term: m.coordinatorTerm}, out)
	if m.role == follower {
		m.campaignAt = m.now + m.campaignDelay()
	}
	m.followContender(out)
}

// handleResigned releases the grant of a process that gave up its claim or its
// office. If the sender was coordinator, the named successor claims the office.
func (m *Machine) handleResigned(msg *election.Message, out *election.Output) {
	m.highestTerm = max(m.highestTerm, msg.Term)
	p := &m.peers[msg.From]
	if p.resignedLife != msg.Hold.Life {
		p.resignedLife, p.resignedTerm = msg.Hold.Life, 0
	}
	p.resignedTerm = max(p.resignedTerm, msg.Term)
	m.ledger.Release(grants.Holder{ID: msg.From, Life: msg.Hold.Life}, msg.Term, m.now)
	if m.vacancy.deferredTo == msg.From && m.campaignAt != election.Never {
		m.vacancy.deferredTo = election.None
		m.campaignAt = min(m.campaignAt, m.now+m.campaignDelay()+m.backoff())
	}
	if m.coordinator != msg.From || m.coordinatorTerm > msg.Term {
		return
	}
	m.coordinatorLost(election.None, true, out)
	switch successor := msg.Subject; {
	case m.role != follower || m.coordinator != election.None || successor == election.None:
	case successor == m.cfg.Self:
		m.campaignAt, m.namedSuccessor = m.now, true
	case m.isMember(successor) && !m.detector.Suspects(successor):
		m.campaignAt += m.cfg.Stagger // the successor comes first, even if its rank is lower
	}
}
