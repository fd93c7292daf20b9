package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// follow recognizes the sender of a BEAT as coordinator.
func (m *Machine) follow(msg *election.Message, out *election.Output) {
	id, term := msg.From, msg.Term
	switch {
	case m.cfg.Mode == Available: // the caller has compared the ranks
	case m.role >= Holder && term > m.term:
		return // The sender is wrong, or the members will renew the grants of this process no more.
	case term < m.coordinatorTerm:
		out.Emit(election.Outdated, term, id)
		return
	case m.boundTo(m.coordinator) && m.coordinator != id:
		// If the coordinator has ended, the sender may have noticed it before this process.
		m.recordContender(msg)
		out.Emit(election.Outdated, term, id)
		return
	case term == m.coordinatorTerm && m.coordinator != election.None && m.coordinator != id &&
		!m.roster.Outranks(id, m.coordinator):
		return
	}
	m.recognize(id, term, out)
	if msg.Hold.Settled && msg.Hold.Version == m.roster.Version {
		m.support.Settle()
	}
	if !m.lastBeat.precedes(msg) {
		return // It announces what has changed since, and may have arrived twice.
	}
	m.lastBeat = sentBeat{life: msg.Hold.Life, at: msg.Hold.Sent, handsOver: msg.Hold.HandsOver}
	if pace := m.cfg.announcedPace(msg.Hold.Heartbeat); pace != m.pace && m.role == Follower {
		m.pace = pace
		m.detector.Retime(m.SuspicionTimeoutInForce())
	}
	m.applyAbsent(msg.List, out)
}

// sentBeat identifies a BEAT of the coordinator. Its zero value precedes every BEAT.
type sentBeat struct {
	life uint32
	at   election.Tick // on the clock of the coordinator
	// handsOver is what it said of the coordinator. No decision depends on it.
	handsOver bool
}

// precedes reports whether the coordinator sent a BEAT after this one.
func (b sentBeat) precedes(beat *election.Message) bool {
	return b == (sentBeat{}) || b.life != beat.Hold.Life || b.at <= beat.Hold.Sent
}

// forgetFalseTerm forgets the term of the last coordinator if a process holds the office in a lower one after that
// coordinator was lost. So the last one never was coordinator, but sent a false BEAT. Otherwise this process would
// ignore the true coordinator until the terms have reached the false one.
func (m *Machine) forgetFalseTerm(answer *election.Message) {
	vacant := m.cfg.Mode != Available && m.role == Follower && m.coordinator == election.None
	sent, earliest := answer.Hold.Sent, max(m.vacancy.since, m.now-m.cfg.SuspicionTimeout)
	recent := answer.Hold.RequesterLife == m.cfg.Life && earliest <= sent && sent <= m.now
	if vacant && answer.Subject == answer.From && recent {
		m.coordinatorTerm = min(m.coordinatorTerm, answer.Term)
	}
}

// boundTo reports whether this process has an unexpired grant for another one. Nobody
// else can hold the office, unless it lost the grants of a majority in the meantime.
func (s *state) boundTo(id election.ID) bool {
	return s.cfg.Mode != Available && id != election.None && s.ledger.Holder(s.now).ID == id
}

// recognize makes a process the coordinator of this one, which ends a claim or a tenure.
func (m *Machine) recognize(id election.ID, term election.Term, out *election.Output) {
	switch m.role {
	case Candidate:
		m.abandonClaim(out)
	case Holder, Draining:
		m.loseTenure(out)
	case Follower:
	}
	since := m.now
	if m.coordinatorTerm == 0 && m.now >= m.peers[id].claimedUntil {
		since = unknownStart // this process has just started, and hasn't seen the claim
	}
	m.countFailedSuccession(id)
	m.vacancy = m.noVacancy()
	m.recovery.learned = election.None
	if m.coordinator != id || m.coordinatorTerm != term {
		m.recordSuccession(id, out)
		m.tenureBegins(id, term, since)
		m.coordinator, m.coordinatorTerm, m.pace, m.lastBeat = id, term, m.cfg.nextPace(m.pace, false), sentBeat{}
		m.readmitAll(out)
		m.peers[id].notBefore, m.available.unacknowledged = 0, 0
		out.Emit(election.Recognized, term, id)
		m.informInner(id, out)
		m.updateWatch()
	}
}

// recordSuccession records the new coordinator. A previous one that hasn't
// resigned is suspected until it sends a sign of life.
func (m *Machine) recordSuccession(by election.ID, out *election.Output) {
	before := m.coordinator
	m.coordinator = by
	if before != election.None && m.cfg.Mode != Available {
		m.tenureEnds(before, lapsed)
	}
	if before == election.None || before == by || before == m.cfg.Self ||
		m.peers[before].resignedTerm >= m.coordinatorTerm {
		return
	}
	m.suspect(before, out)
}

// applyAbsent applies the coordinator's list of suspects and ineligible processes:
// see absent. A process from which this one itself has received messages isn't
// suspected: with broken links, the coordinator may be the one that doesn't.
func (m *Machine) applyAbsent(absent []election.ID, out *election.Output) {
	dead, rest := cut(absent)
	ineligible, flapping := cut(rest)
	for id := range m.peers {
		if id := election.ID(id); id != m.coordinator && id != m.cfg.Self {
			m.peers[id].ineligible = slices.Contains(ineligible, id)
			m.peers[id].flaps = slices.Contains(flapping, id)
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

// coordinatorLost handles the vacancy of the office. If the inner election determines that this process is next, the
// process claims the office; the others wait for their campaign delay. The vacancy is proven if the coordinator has
// ended or resigned.
func (m *Machine) coordinatorLost(dead election.ID, proven bool, out *election.Output) {
	m.coordinator, m.recovery.learned, m.pace = election.None, election.None, m.cfg.nextPace(m.pace, false)
	m.vacancy = m.newVacancy(dead, proven, !proven)
	m.skipIneligible(out)
	m.updateWatch()
	if !proven && m.role == Follower {
		m.probes.at = m.now // the others wait to hear that this process has no coordinator: see preVote
	}
	m.informInner(election.None, out)
	if m.role == Follower {
		m.vacancy.campaignAt = m.now + m.campaignDelay()
	}
	m.followContender(out)
}

// handleResigned releases the grant of a process that gave up its claim or its
// office. If the sender was coordinator, the named successor claims the office.
func (m *Machine) handleResigned(msg *election.Message, out *election.Output) {
	m.see(msg.Term)
	p := &m.peers[msg.From]
	if p.resignedLife != msg.Hold.Life {
		p.resignedLife, p.resignedTerm = msg.Hold.Life, 0
	}
	p.resignedTerm = max(p.resignedTerm, msg.Term)
	if sender := (grants.Holder{ID: msg.From, Life: msg.Hold.Life}); msg.Hold.Held {
		m.ledger.Abandon(sender, msg.Term, m.now)
	} else {
		m.ledger.Release(sender, msg.Term, m.now)
	}
	m.endDeferral(msg.From)
	if !m.takesForCoordinator(msg.From) || m.coordinatorTerm > msg.Term {
		return
	}
	if msg.Subject != election.None && msg.Subject != m.contender.id {
		m.contender = contender{} // the successor comes first
	}
	how := endingOf(msg)
	m.tenureEnds(msg.From, how)
	m.pace = m.cfg.nextPace(m.pace, how == lapsed)
	m.coordinatorLost(election.None, true, out)
	if m.isMember(msg.Subject) && m.coordinator == election.None {
		m.vacancy.successor = msg.Subject
	}
	switch successor := msg.Subject; {
	case m.role != Follower || m.coordinator != election.None || successor == election.None:
	case successor == m.cfg.Self:
		m.vacancy.campaignAt = m.now
	case m.isMember(successor) && !m.detector.Suspects(successor):
		m.vacancy.campaignAt += m.cfg.Stagger // the successor comes first, even if its rank is lower
	}
}
