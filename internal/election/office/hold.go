package office

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// heartbeat sends BEATs, which request or renew grants and announce the coordinator.
func (m *Machine) heartbeat(out *election.Output) {
	if m.role >= Holder {
		if d := &m.tenure.delays; m.now >= d.periodEnd {
			m.pace = d.endPeriod(m.pace, &m.cfg, m.now)
		}
		m.detector.Retime(m.SuspicionTimeoutInForce())
	}
	m.beatAt = m.now + m.cfg.Heartbeat
	if m.cfg.Mode == Available {
		if m.role == Candidate && m.term > m.ledger.Reserved() {
			m.beatAt = election.Never // until it is reserved
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
func (s *state) nextBeat(interval election.Tick) election.Tick {
	if s.cfg.AlignHeartbeats && s.role >= Holder {
		return (s.now/interval + 1) * interval
	}
	return s.now + interval
}

// requestOwnGrant requests the grant of this process itself.
func (m *Machine) requestOwnGrant() {
	answer := m.answerTo(m.grantRequest())
	m.candidacy.waits = m.candidacy.waits || answer == grants.Deferred
	m.peers[m.cfg.Self].refusedClaim = answer == grants.TermTooLow || answer == grants.NoVote
	if answer == grants.Granted {
		m.support.Add(m.cfg.Self, m.now, m.leaseInForce())
		m.support.RecordAdoption(m.cfg.Self, m.reportedVersion())
	}
}

func (m *Machine) grantRequest() grants.Request {
	return grants.Request{
		Holder: m.incarnation(),
		Term:   m.term, Held: m.role >= Holder, Version: m.roster.Version, Sent: m.now, Lease: m.leaseInForce(),
	}
}

func (m *Machine) sendBeats(interval election.Tick, out *election.Output) {
	renewed := m.othersRenew(interval)
	m.request = request{sent: m.now, lease: m.leaseInForce(), granted: m.leaseInForce()}
	var absent []election.ID // all receivers share it
	if m.role >= Holder {
		absent = m.absent()
	}
	m.eachMember(func(id election.ID) {
		switch mayRest := renewed && m.roster.Priority(id) == 0; {
		case id == m.cfg.Self:
		case !mayRest:
			m.sendBeat(id, interval, absent, out)
		case m.rests(id):
			m.detector.Watch(id, m.now) // it has nothing to answer
		default:
			m.sendBeat(id, max(interval, m.restInterval()), absent, out)
		}
	})
}

func (m *Machine) sendBeat(to election.ID, interval election.Tick, absent []election.ID, out *election.Output) {
	beat := election.Message{
		Kind: election.Beat, From: m.cfg.Self, To: to, Term: m.term, Subject: m.cfg.Self, List: absent,
	}
	held := m.role >= Holder
	beat.Hold = election.Hold{
		Sent: m.now, Version: m.roster.Version, Held: held, Settled: held && m.support.Settled(), Lease: m.request.lease,
		HandsOver: m.role == Draining,
		Heartbeat: max(interval, m.pace.of(m.cfg.Heartbeat)), // followers wait longer if renewals have been late
	}
	if p := &m.peers[to]; m.cfg.Mode == Available && p.answersUntil > m.now {
		beat.Hold.RequesterLife = p.life // see acknowledged
	}
	if held && m.cfg.Mode != Available && m.roster.Priority(to) == 0 {
		m.peers[to].asked = m.now
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

// absent lists the processes that no election should wait for: the suspects and, after a None, those that are alive but
// ineligible and, after another one, those that flap. Only the coordinator receives messages from all processes, so it
// shares this list.
func (s *state) absent() []election.ID {
	absent := s.detector.All().Clone()
	separators := 0
	section := func(number int, belongs func(*peer) bool) {
		for id := range s.peers {
			id := election.ID(id)
			if !belongs(&s.peers[id]) || !s.isMember(id) || s.detector.Suspects(id) {
				continue
			}
			for ; separators < number; separators++ {
				absent = append(absent, election.None)
			}
			absent = append(absent, id)
		}
	}
	section(1, func(p *peer) bool { return p.ineligible })
	section(2, func(p *peer) bool { return p.flaps && !p.ineligible })
	return absent
}

// cut returns what precedes the first None in a list, and what follows it.
func cut(list []election.ID) (before, after []election.ID) {
	if i := slices.Index(list, election.None); i >= 0 {
		return list[:i], list[i+1:]
	}
	return list, nil
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

func (s *state) otherSeemsAlive() bool {
	return slices.ContainsFunc(s.roster.Ring(), func(other election.Member) bool {
		return other.ID != s.cfg.Self && !s.detector.Suspects(other.ID)
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

// leaveOffice makes a process that held the office a follower that knows no coordinator.
func (m *Machine) leaveOffice(out *election.Output) {
	how := m.ownEnding()
	m.tenureEnds(m.cfg.Self, how)
	m.support.Clear()
	m.coordinator, m.pace = election.None, m.cfg.nextPace(m.pace, how == lapsed)
	m.vacancy = m.newVacancy(election.None, false, true) // the answers to its BEATs are recent
	m.becomeFollower()
	m.skipIneligible(out)
	m.informInner(election.None, out)
}
