package office

import "github.com/conclave-dev/conclave/internal/election"

// An observer rests while the members that may lead are a majority and renew their grants: nothing depends on its vote.
// The coordinator sends it few BEATs, and announces that. As soon as a renewal is missing, it gets each BEAT. An
// observer whose grant has ended binds nobody. It judges the silence of the coordinator by the usual timeout when a
// member that may lead has lost that one, so no election waits for it.

// restHeartbeats is the number of heartbeats after which a resting observer gets a BEAT, if the longest lease permits.
const restHeartbeats = 8

// leaseWithRest is the least number of heartbeats in a lease with a rest. When a renewal is missing, two have passed,
// and the observer has one to answer.
const leaseWithRest = 4

// hasObservers reports whether the list has members of priority 0.
func (s *state) hasObservers() bool { return s.roster.Ranked()[s.roster.Len()-1].Priority == 0 }

// othersRenew reports whether the members that may lead have renewed their grants with the last BEATs, and suffice.
func (m *Machine) othersRenew(interval election.Tick) bool {
	return m.role >= Holder && m.cfg.Mode != Available && m.support.Settled() && m.hasObservers() &&
		m.request.granted >= leaseWithRest*interval &&
		m.majority(func(id election.ID) bool {
			return id == m.cfg.Self || m.roster.Priority(id) > 0 && m.peers[id].granted >= m.request.sent
		})
}

// restInterval is the time between two BEATs to a resting observer. Its suspicion timeout is at least twice that.
func (s *state) restInterval() election.Tick {
	return min(restHeartbeats*s.cfg.Heartbeat, s.cfg.Lease/2)
}

// rests reports whether an observer needs no BEAT now: it has answered the last one, and follows.
func (m *Machine) rests(id election.ID) bool {
	p := &m.peers[id]
	return p.granted >= p.asked && p.follows == m.cfg.Self && m.now < p.asked+m.restInterval() && !m.detector.Suspects(id)
}

// endRest makes an observer judge the silence of its coordinator by the usual timeout: a member that may lead, and gets
// each BEAT, has lost it.
func (m *Machine) endRest(probe *election.Message, out *election.Output) {
	may := func(id election.ID) bool { return m.roster.Priority(id) > 0 }
	if m.role != Follower || m.cfg.Mode == Available || m.coordinator == election.None || may(m.cfg.Self) ||
		!may(probe.From) || probe.Subject != election.None || probe.Term < m.coordinatorTerm {
		return
	}
	m.pace = fullPace
	m.detector.Retime(m.SuspicionTimeoutInForce())
	m.detectSilence(out)
}
