package office

import "github.com/conclave-dev/conclave/internal/election"

// maxEpochsAhead limits how far the inner election may run ahead of the clock, by
// starting again and again or by following a message. No member could grant a term
// that it wins there.
const maxEpochsAhead election.Epoch = 2

// stepInner passes an input to the inner election and acts on the outcome.
func (m *Machine) stepInner(in election.Input, out *election.Output) {
	before, mayClaim := len(out.Events), m.mayClaim()
	m.inner.Step(in, out)
	kept := out.Events[:before]
	for _, e := range out.Events[before:] {
		if e.Kind != election.Recognized {
			kept = append(kept, e)
		}
	}
	out.Events = kept
	status := m.inner.Status()
	m.highestTerm = max(m.highestTerm, status.Term)
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
	if mayClaim && !m.awaitTurn() && !(m.role == Follower && m.awaitBound()) {
		m.claim(m.termOfWin(status.Term), out)
	}
}

// informInner tells the inner election which process is coordinator. A term that this
// process couldn't use itself would keep it from starting elections.
func (m *Machine) informInner(id election.ID, out *election.Output) {
	term := m.coordinatorTerm
	if !m.usable(term) {
		term = m.cfg.Clock.Ceiling(m.now) + maxEpochsAhead.First()
	}
	m.stepInner(election.Input{Kind: election.Follow, Now: m.now, Peer: id, Term: term}, out)
}

// stepInnerQuietly makes the inner election treat a peer as dead, or as alive
// again. It drops the events that report so, because they would be wrong.
func (m *Machine) stepInnerQuietly(kind election.InputKind, id election.ID, out *election.Output) {
	before := len(out.Events)
	m.stepInner(election.Input{Kind: kind, Ineligible: true, Now: m.now, Peer: id}, out)
	kept := out.Events[:before]
	for _, e := range out.Events[before:] {
		if e.Peer != id || e.Kind != election.MarkedCrashed && e.Kind != election.MarkedNormal {
			kept = append(kept, e)
		}
	}
	out.Events = kept
}

// innerDeadline is the deadline of the inner election, or when its recovery procedure
// starts. An election that has run too far ahead of the clock waits for the clock.
func (m *Machine) innerDeadline() election.Tick {
	resumes := max(m.vacancy.innerPausedUntil, m.cfg.Clock.Due(m.highestTerm-min(m.highestTerm, maxEpochsAhead.First())))
	return min(m.recovery.startAt, max(m.inner.Deadline(), resumes))
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
	m.stepInner(election.Input{Kind: election.TimePassed, Now: m.now}, out)
	if m.inner.Status().Term > before { // it started again
		if m.coordinator != election.None {
			m.recovery.finish() // the others follow, too: they answer an ELECTION, but announce nobody
		}
		m.vacancy.attempt()
		m.vacancy.innerPausedUntil = m.now + m.backoff()
	}
}
