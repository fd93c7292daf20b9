package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// heartbeat sends BEATs, which request or renew grants and announce the
// coordinator.
func (m *Machine) heartbeat(out *election.Output) {
	m.shorten()
	m.beatAt = m.now + m.HeartbeatInForce()
	if m.cfg.Mode == Available {
		if due := m.cfg.Clock.Due(m.term); m.role == Candidate && m.now < due {
			m.beatAt = due
			return
		}
	} else {
		m.requestOwnGrant()
	}
	m.acquireIfGranted(out)
	if m.role == Candidate && m.unanswered() {
		m.abandonClaim(out)
	}
	if m.role == Follower {
		return
	}
	interval := m.beatInterval()
	m.beatAt = m.nextBeat(interval)
	m.sendBeats(interval, out)
}

// nextBeat returns the moment of the next BEATs. A claim isn't aligned: it repeats its
// requests after a whole heartbeat.
func (m *Machine) nextBeat(interval election.Tick) election.Tick {
	if m.cfg.AlignHeartbeats && m.role >= Holder {
		return (m.now/interval + 1) * interval
	}
	return m.now + interval
}

// requestOwnGrant requests the grant of this process itself.
func (m *Machine) requestOwnGrant() {
	answer := m.ledger.Handle(m.grantRequest(), m.roster.Version, m.now)
	m.peers[m.cfg.Self].refusedClaim = answer == grants.TermTooLow
	if answer == grants.Granted {
		m.support.Add(m.cfg.Self, m.now, m.requestedLease())
		m.support.RecordAdoption(m.cfg.Self, m.ledger.ReportedVersion(m.roster.Version, m.now), m.ledger.HighestGrantedExcept(m.incarnation(), m.term))
	}
}

func (m *Machine) grantRequest() grants.Request {
	return grants.Request{
		Holder: m.incarnation(),
		Term:   m.term, Held: m.role >= Holder, Version: m.roster.Version, Sent: m.now, Lease: m.requestedLease(),
	}
}

func (m *Machine) sendBeats(interval election.Tick, out *election.Output) {
	held := m.role >= Holder
	m.request = request{sent: m.now, lease: m.requestedLease(), granted: m.requestedLease()}
	var absent []election.ID // all receivers share it
	if held {
		absent = m.absent()
	}
	m.eachMember(func(id election.ID) {
		if id == m.cfg.Self {
			return
		}
		beat := election.Message{Kind: election.Beat, From: m.cfg.Self, To: id, Term: m.term, Subject: m.cfg.Self}
		beat.List = absent
		beat.Hold = election.Hold{Sent: m.now, Version: m.roster.Version, Held: held, Lease: m.request.lease, Heartbeat: interval}
		if p := &m.peers[id]; m.cfg.Mode == Available && p.answersUntil > m.now {
			beat.Hold.RequesterLife = p.life // see acknowledged
		}
		out.Send = append(out.Send, beat)
	})
}

// absent lists the processes that no election should wait for: the suspects and,
// after a None, those that are alive but ineligible. Only the coordinator receives
// messages from all processes, so it shares this list.
func (m *Machine) absent() []election.ID {
	absent := m.detector.All().Clone()
	suspects := len(absent)
	for id := range m.peers {
		if m.peers[id].ineligible && !m.detector.Suspects(election.ID(id)) {
			if len(absent) == suspects {
				absent = append(absent, election.None)
			}
			absent = append(absent, election.ID(id))
		}
	}
	return absent
}

// expireTenure ends a tenure whose grants have expired.
func (m *Machine) expireTenure(out *election.Output) {
	if m.role >= Holder && m.now >= m.until() {
		m.cause = "lease"
		m.loseTenure(out)
	}
}

// loseTenure ends a tenure that could not be renewed. The members that this process
// still reaches are told, so that they don't wait for its silence.
func (m *Machine) loseTenure(out *election.Output) {
	out.Emit(election.TenureLost, m.term, m.cfg.Self)
	m.ledger.Release(m.incarnation(), m.term, m.now)
	m.sendResigned(election.None, out)
	m.leaveOffice(out)
	m.vacancy.campaignAt = m.now + m.cfg.SuspicionTimeout + m.campaignDelay()
}

// leaveOffice makes a process that held the office a follower that knows no
// coordinator.
func (m *Machine) leaveOffice(out *election.Output) {
	m.support.Clear()
	m.coordinator, m.pace = election.None, fullPace
	m.vacancy = m.newVacancy(election.None, false, true) // the answers to its BEATs are recent
	m.becomeFollower()
	m.skipIneligible(out)
	m.informInner(election.None, out)
}
