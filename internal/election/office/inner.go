package office

import "github.com/conclave-dev/conclave/internal/election"

// stepInner passes an input to the inner election and acts on the outcome.
func (m *Machine) stepInner(in election.Input, out *election.Output) {
	before, mayClaim := len(out.Events), m.mayClaim()
	in.Now = m.now
	m.inner.Step(in, out)
	kept := out.Events[:before]
	for _, e := range out.Events[before:] {
		if e.Kind != election.Recognized {
			kept = append(kept, e)
		}
	}
	out.Events = kept
	status := m.inner.Status()
	m.see(status.Term)
	if m.recovery.phase == recovering && !status.Electing {
		m.recovery.phase = recovered
	}
	if status.Coordinator != m.cfg.Self || status.Term <= m.wonTerm {
		return
	}
	m.wonTerm = status.Term
	if m.role >= Holder {
		m.heartbeat(out) // it is coordinator already: inform the process that started the election
		return
	}
	if mayClaim {
		m.claim(m.nextTerm(), out)
	}
}

// informInner tells the inner election which process is coordinator.
func (m *Machine) informInner(id election.ID, out *election.Output) {
	m.stepInner(election.Input{Kind: election.Follow, Peer: id, Term: m.coordinatorTerm}, out)
}

// stepInnerQuietly makes the inner election treat a peer as dead, or as alive
// again. It drops the events that report so, because they would be wrong.
func (m *Machine) stepInnerQuietly(kind election.InputKind, id election.ID, out *election.Output) {
	before := len(out.Events)
	m.stepInner(election.Input{Kind: kind, Ineligible: true, Peer: id}, out)
	kept := out.Events[:before]
	for _, e := range out.Events[before:] {
		if e.Peer != id || e.Kind != election.MarkedCrashed && e.Kind != election.MarkedNormal {
			kept = append(kept, e)
		}
	}
	out.Events = kept
}

// innerDeadline is the deadline of the inner election, or when its recovery procedure starts.
func (m *Machine) innerDeadline() election.Tick {
	return min(m.recovery.startAt, max(m.inner.Deadline(), m.vacancy.innerPausedUntil))
}

// pauseInner delays an inner election that no majority would grant anything, and
// one that starts again. It reports whether the inner election must wait.
func (m *Machine) pauseInner() bool {
	vacant := m.role == Follower && m.coordinator == election.None
	if m.cfg.Mode == Available || !vacant || m.vacancy.attempts == 0 || m.preVoteSucceeds() {
		return false
	}
	m.vacancy.innerPausedUntil = m.now + m.cfg.Heartbeat
	return true
}

// fireInner lets the inner election act on its deadline. While there is a
// coordinator, the election is over, whatever it still waits for.
func (m *Machine) fireInner(out *election.Output) {
	if m.now >= m.recovery.startAt {
		m.cause = "recover" // which changes no role: see mayClaim
		m.startRecovery(out)
		return
	}
	if m.coordinator != election.None && m.recovery.phase != recovering {
		m.wonTerm = max(m.wonTerm, m.inner.Status().Term)
		m.informInner(m.coordinator, out)
		m.vacancy.innerPausedUntil = m.now + m.cfg.Heartbeat
		return
	}
	if m.pauseInner() {
		return
	}
	before := m.inner.Status().Term
	m.stepInner(election.Input{Kind: election.TimePassed}, out)
	if m.inner.Status().Term > before { // it started again
		if m.coordinator != election.None {
			m.recovery.finish() // the others follow, too: they answer an ELECTION, but announce nobody
		}
		m.vacancy.attempt()
		m.vacancy.innerPausedUntil = m.now + m.backoff()
	}
}
