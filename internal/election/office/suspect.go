package office

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// updateWatch makes the detector watch the processes whose signs of life are due:
// for a follower that is its coordinator, otherwise all members.
func (m *Machine) updateWatch() {
	if m.role == Follower && m.coordinator != election.None {
		m.detector.Unwatch(m.SuspicionTimeoutInForce())
		m.detector.Watch(m.coordinator, m.now)
		m.probes.at = m.now // perhaps it may take over: see probe
		return
	}
	m.detector.Unwatch(m.probeTimeout())
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			m.detector.Watch(id, m.now)
		}
	})
	if m.role == Follower { // Others send no probes.
		m.probes.at = m.nextProbe()
	}
}

// postponeSuspicionsIfLate postpones suspicions if this step is late for a deadline. The process was
// paused or had no CPU time, and messages that arrived meanwhile may not have been read.
func (m *Machine) postponeSuspicionsIfLate() {
	if m.now-m.cfg.Heartbeat/2 > m.due {
		m.detector.Postpone(m.now, m.cfg.Heartbeat/2)
	}
}

// markAlive records a sign of life.
func (m *Machine) markAlive(id election.ID, out *election.Output) {
	if m.detector.Observe(id, m.now) {
		m.stepInner(election.Input{Kind: election.Restore, Peer: id}, out)
	}
}

// suspect makes a process a suspect on other evidence than its silence.
func (m *Machine) suspect(id election.ID, out *election.Output) {
	if id == m.cfg.Self || !m.isMember(id) {
		out.Emit(election.Refused, 0, id)
		return
	}
	if m.detector.Suspect(id) {
		m.lose(id, false, out)
	}
}

// detectSilence suspects all processes that have been silent for too long.
func (m *Machine) detectSilence(out *election.Output) {
	m.cause = "silence"
	for id := m.detector.Overdue(m.now); id != election.None; id = m.detector.Overdue(m.now) {
		m.lose(id, false, out)
	}
}

// lose handles a process that is suspected or, if that is proven, has ended.
func (m *Machine) lose(id election.ID, proven bool, out *election.Output) {
	m.peers[id].ready = false
	m.stepInner(election.Input{Kind: election.Suspect, Peer: id}, out)
	m.endDeferral(id)
	if m.takesForCoordinator(id) {
		how := lapsed
		if proven {
			how = crashed
		}
		m.tenureEnds(id, how)
		m.coordinatorLost(id, proven, out)
	}
}

// processEnded handles the report that one incarnation of a process has certainly ended.
func (m *Machine) processEnded(id election.ID, life uint32, out *election.Output) {
	if id == m.cfg.Self || !m.isMember(id) {
		out.Emit(election.Refused, 0, id)
		return
	}
	if m.cfg.Mode == Majority {
		m.ledger.ProcessEnded(grants.Holder{ID: id, Life: life}, m.now)
	}
	if known := m.peers[id].life; known != life && known != 0 {
		return
	}
	m.peers[id].heardUntil, m.peers[id].answersUntil = m.now, -election.Never
	if m.detector.Suspect(id) {
		m.lose(id, true, out)
	}
	if id == m.vacancy.lost && !m.vacancy.proven {
		m.vacancy.proven, m.tenures.lapsed = true, false
		m.retryPreVote()
	}
}
