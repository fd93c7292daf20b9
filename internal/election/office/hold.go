package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// heartbeat sends BEATs, which request or renew grants and announce the
// coordinator.
func (m *Machine) heartbeat(out *election.Output) {
	m.shorten()
	if m.role >= Holder {
		m.detector.Retime(m.SuspicionTimeoutInForce())
	}
	m.beatAt = m.now + m.cfg.Heartbeat
	if m.cfg.Mode == Available {
		if due := m.cfg.Clock.Due(m.term); m.role == Candidate && m.now < due {
			m.beatAt = due
			return
		}
	} else {
		m.requestOwnGrant()
	}
	m.acquireIfGranted(out)
	if m.role == Candidate && m.claimFails() {
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
	answer := m.answerTo(m.grantRequest())
	m.peers[m.cfg.Self].refusedClaim = answer == grants.TermTooLow
	if answer == grants.Granted {
		m.support.Add(m.cfg.Self, m.now, m.requestedLease())
		m.support.RecordAdoption(m.cfg.Self, m.ledger.ReportedVersion(m.roster.Version, m.now),
			m.ledger.HighestGrantedExcept(m.incarnation(), m.term))
	}
}

func (m *Machine) grantRequest() grants.Request {
	return grants.Request{
		Holder: m.incarnation(),
		Term:   m.term, Held: m.role >= Holder, Version: m.roster.Version, Sent: m.now, Lease: m.requestedLease(),
	}
}

func (m *Machine) sendBeats(interval election.Tick, out *election.Output) {
	m.request = request{sent: m.now, lease: m.requestedLease(), granted: m.requestedLease()}
	var absent []election.ID // all receivers share it
	if m.role >= Holder {
		absent = m.absent()
	}
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			m.sendBeat(id, interval, absent, out)
		}
	})
}

func (m *Machine) sendBeat(to election.ID, interval election.Tick, absent []election.ID, out *election.Output) {
	beat := election.Message{
		Kind: election.Beat, From: m.cfg.Self, To: to, Term: m.term, Subject: m.cfg.Self, List: absent,
	}
	beat.Hold = election.Hold{
		Sent: m.now, Version: m.roster.Version, Held: m.role >= Holder, Lease: m.request.lease,
		Heartbeat: m.announced(interval),
	}
	if m.role >= Holder && m.roster.Previous != nil && m.support.Settled() {
		beat.Hold.HighestGranted = max(m.support.Floor(), 1)
	}
	if p := &m.peers[to]; m.cfg.Mode == Available && p.answersUntil > m.now {
		beat.Hold.RequesterLife = p.life // see acknowledged
	}
	out.Send = append(out.Send, beat)
}

// sendBeatToRestarted sends a BEAT to a process that has restarted, as its first message shows. Until it has received
// one, it doesn't follow this process, and would not react if this process ended.
func (m *Machine) sendBeatToRestarted(msg *election.Message, out *election.Output) {
	restarted := m.role >= Holder && msg.From != m.cfg.Self && m.peers[msg.From].life != msg.Hold.Life
	if restarted && msg.Kind != election.Grant && msg.Kind != election.Deny { // it has received a BEAT
		m.sendBeat(msg.From, m.beatInterval(), m.absent(), out)
	}
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

// expireTenure ends a tenure whose grants have expired, or whose process has stood still.
func (m *Machine) expireTenure(out *election.Output) {
	if m.role >= Holder && (m.now >= m.until() || m.stoodStill()) {
		m.cause = "lease"
		m.loseTenure(out)
	}
}

// stoodStill reports whether a holder in Available mode has sent no BEATs for so long that the others have
// another coordinator by now. There are no grants that would have expired meanwhile. Without this rule the
// process would take the office back by its rank, after each pause, whatever the policy and the penalties are.
func (m *Machine) stoodStill() bool {
	return m.cfg.Mode == Available && m.now >= m.request.sent+m.cfg.SuspicionTimeout+m.cfg.Heartbeat && m.otherSeemsAlive()
}

func (m *Machine) otherSeemsAlive() bool {
	return slices.ContainsFunc(m.roster.Ring(), func(other election.Member) bool {
		return other.ID != m.cfg.Self && !m.detector.Suspects(other.ID)
	})
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
	how := m.ownEnding()
	m.endTenure(m.cfg.Self, how)
	m.support.Clear()
	m.coordinator, m.pace = election.None, m.nextPace(how == lapsed)
	m.vacancy = m.newVacancy(election.None, false, true) // the answers to its BEATs are recent
	m.becomeFollower()
	m.skipIneligible(out)
	m.informInner(election.None, out)
}
