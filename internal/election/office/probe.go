package office

import "github.com/conclave-dev/conclave/internal/election"

// probes is when a follower sends its next probes, and to whom.
type probes struct {
	// at is Never if the process sends none.
	at election.Tick
	// turn is the part of the members that was probed last.
	turn int
}

// maxProbesPerTurn limits how many members a process probes at a time. If in a
// large group each process probed all others, handling the probes would take all
// the time in which a coordinator could be elected: a hundred processes would send
// a hundred thousand probes a second.
const maxProbesPerTurn = 16

// probeTurns is the number of parts into which the members are divided. One part
// is probed with each heartbeat.
func (m *Machine) probeTurns() int { return 1 + (m.roster.Len()-2)/maxProbesPerTurn }

// probeTimeout is the silence after which a process is suspected whose signs of
// life are its probes, or its answers to the coordinator. It grows with the number of turns. While members answer the
// coordinator late, it is as long as the timeout for the coordinator: a higher process must seem alive for a
// while to take over.
func (m *Machine) probeTimeout() election.Tick {
	timeout := m.cfg.SuspicionTimeout
	if m.coordinator != election.None {
		timeout = m.SuspicionTimeoutInForce()
	}
	if m.role == Follower {
		return timeout * election.Tick(m.probeTurns())
	}
	return timeout // the other processes answer the BEATs of this one
}

// probe sends a sign of life, which names the coordinator of this process, while
// there is no coordinator whose BEATs would report which processes are alive.
// Otherwise dead processes wouldn't be detected, and two processes that suspect
// each other would wait for each other's signs of life forever. A process that may
// take over probes to find out which members it reaches, and one that forgot what it has
// granted asks the others for it.
func (m *Machine) probe(out *election.Output) {
	m.probes.at = election.Never
	if m.coordinator != election.None && !m.mayTakeOver() && !m.forgot() {
		return
	}
	m.probes.at = m.nextProbe()
	m.support.RecordAdoption(m.cfg.Self, m.ledger.ReportedVersion(m.roster.Version, m.now), m.ledger.HighestGranted())
	m.retryPreVote()
	m.sendProbes(out)
}

// nextProbe returns when to send the next probes. The answers to those for the recovery count from
// RecoveryStart on, so they are sent at that moment. If members that are down don't answer, later ones
// are sent less often.
func (m *Machine) nextProbe() election.Tick {
	next := m.now + m.cfg.Heartbeat
	switch start := m.ledger.RecoveryStart(); {
	case !m.forgot():
		if pause := m.probePause(); pause > 0 && m.majorityAnswers(pause) {
			return m.now + pause
		}
	case m.now < start && (m.coordinator != election.None || start < next):
		return start
	case m.coordinator != election.None && (!m.mayTakeOver() || m.cfg.Policy == NeverPreempt) &&
		m.now >= start+m.claimTimeout():
		return m.now + rareProbes*m.cfg.Heartbeat
	}
	return next
}

// rareProbes is the number of heartbeats between two probes for a recovery that takes long, and in probePause.
const rareProbes = 16

// probePause is how much longer than usual an answer of another member counts, and how long the process waits then
// before it probes again. With NeverPreempt, a coordinator of lower rank hands over only on request, so rare probes
// suffice: if 30 members probed each other with each heartbeat until then, they would send ten thousand messages a
// second.
func (m *Machine) probePause() election.Tick {
	if m.cfg.Policy == NeverPreempt && m.mayTakeOver() {
		return rareProbes * m.cfg.Heartbeat
	}
	return 0
}

// sendProbes sends probes to the next part of the members.
func (m *Machine) sendProbes(out *election.Output) {
	turns := m.probeTurns()
	m.probes.turn = (m.probes.turn + 1) % turns
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self && int(id)%turns == m.probes.turn {
			m.sendProbe(id, out)
		}
	})
}

func (m *Machine) sendProbe(to election.ID, out *election.Output) {
	probe := election.Message{
		Kind: election.Probe, From: m.cfg.Self, To: to, Term: m.coordinatorTerm, Subject: m.coordinator,
	}
	probe.Hold.Sent = m.now
	out.Send = append(out.Send, probe)
}

// handleProbe records which coordinator a peer follows, and answers a probe. An
// answer, which is marked as held, proves that messages pass in both directions. It
// also reports what the answer to a claim would report: the adopted list and the
// highest granted term.
func (m *Machine) handleProbe(msg *election.Message, out *election.Output) {
	if msg.Hold.Held {
		m.see(msg.Hold.ElectionTerm)
		m.recordAwareness(msg.From)
	}
	p := &m.peers[msg.From]
	p.follows, p.followsTerm, p.followsUntil = msg.Subject, msg.Term, m.now+m.probeTimeout()
	if m.cfg.Mode == Available && (msg.Hold.Held || m.coordinator == election.None) {
		m.retryPreVote()
		return // a process that has no coordinator sends probes itself
	}
	if msg.Hold.Held {
		m.recordReport(msg)
		m.forgetFalseTerm(msg)
	}
	m.retryPreVote()
	m.followContender(out)
	if msg.Hold.Held {
		return
	}
	answer := election.Message{
		Kind: election.Probe, From: m.cfg.Self, To: msg.From, Term: m.coordinatorTerm, Subject: m.coordinator,
	}
	answer.Hold.Held, answer.Hold.Sent, answer.Hold.RequesterLife, answer.Hold.Roster = true, msg.Hold.Sent,
		msg.Hold.Life, m.roster.Version
	answer.Hold.Version, answer.Hold.HighestGranted = m.ledger.ReportedVersion(m.roster.Version, m.now),
		m.ledger.HighestGranted()
	answer.Hold.Ceiling, answer.Hold.ElectionTerm = m.cfg.Clock.Ceiling(m.now), m.inner.Status().Term
	out.Send = append(out.Send, answer)
}
