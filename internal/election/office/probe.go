package office

import "github.com/conclave-dev/conclave/internal/election"

// probes is when a follower sends its next probes, and to whom.
type probes struct {
	// at is Never if the process sends none.
	at election.Tick
	// turn is the part of the members that was probed last.
	turn int
}

// maxProbesPerTurn limits how many members a process probes at a time. If in a large group each process probed all
// others, handling the probes would take all the time in which a coordinator could be elected: a hundred processes
// would send a hundred thousand probes a second.
const maxProbesPerTurn = 16

// probeTurns is the number of parts into which the members are divided. One part is probed with each heartbeat.
func (s *state) probeTurns() int { return 1 + (s.roster.Len()-2)/maxProbesPerTurn }

// probeTimeout is the silence after which a process is suspected whose signs of life are its probes, or its answers to
// the coordinator. It grows with the number of turns. While members answer the coordinator late, it is as long as the
// timeout for the coordinator: a higher process must seem alive for a while to take over.
func (s *state) probeTimeout() election.Tick {
	timeout := s.cfg.SuspicionTimeout
	if s.coordinator != election.None {
		timeout = s.SuspicionTimeoutInForce()
	}
	if s.role == Follower {
		return timeout * election.Tick(s.probeTurns())
	}
	return timeout // the other processes answer the BEATs of this one
}

// probe sends a sign of life, which names the coordinator of this process, while there is no coordinator whose BEATs
// would report which processes are alive. Otherwise dead processes wouldn't be detected, and two processes that suspect
// each other would wait for each other's signs of life forever. A process that may take over probes to find out which
// members it reaches.
func (m *Machine) probe(out *election.Output) {
	m.probes.at = election.Never
	if m.coordinator != election.None && !m.mayTakeOver() {
		return
	}
	m.probes.at = m.nextProbe()
	m.support.RecordAdoption(m.cfg.Self, m.reportedVersion())
	m.retryPreVote()
	m.sendProbes(out)
}

// nextProbe returns when to send the next probes.
func (s *state) nextProbe() election.Tick {
	if pause := s.probePause(); pause > 0 && s.majorityAnswers(pause) {
		return s.now + pause
	}
	return s.now + s.cfg.Heartbeat
}

// rareProbes is the number of heartbeats between two probes in probePause.
const rareProbes = 16

// probePause is how much longer than usual an answer of another member counts, and how long the process waits then
// before it probes again. With NeverPreempt, a coordinator of lower rank hands over only on request, so rare probes
// suffice: if 30 members probed each other with each heartbeat until then, they would send ten thousand messages a
// second.
func (s *state) probePause() election.Tick {
	if s.cfg.Policy == NeverPreempt && s.mayTakeOver() {
		return rareProbes * s.cfg.Heartbeat
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

func (s *state) sendProbe(to election.ID, out *election.Output) {
	probe := election.Message{
		Kind: election.Probe, From: s.cfg.Self, To: to, Term: s.coordinatorTerm, Subject: s.coordinator,
	}
	probe.Hold.Sent = s.now
	out.Send = append(out.Send, probe)
}

// handleProbe records which coordinator a peer follows, and answers a probe. An answer, which is marked as held, proves
// that messages pass in both directions. It also reports what the answer to a claim would report: the adopted list and
// the highest granted term.
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
	m.endRest(msg, out)
	answer := election.Message{
		Kind: election.Probe, From: m.cfg.Self, To: msg.From, Term: m.coordinatorTerm, Subject: m.coordinator,
	}
	answer.Hold = election.Hold{
		Held: true, Sent: msg.Hold.Sent, RequesterLife: msg.Hold.Life, Version: m.reportedVersion(),
		HighestGranted: m.ledger.HighestGranted(), ElectionTerm: m.inner.Status().Term,
	}
	out.Send = append(out.Send, answer)
}
