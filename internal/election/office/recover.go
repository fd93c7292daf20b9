package office

import "github.com/conclave-dev/conclave/internal/election"

// recovery is what a process does and learns with the recovery procedure of its
// inner election: an election, the REQUEST for a table, or an INQUIRY. It runs
// once in each life, when the input Recover reports that peers can be reached.
//
// It takes the office from nobody, because the process claims nothing while it recovers. A process that follows a
// coordinator doesn't claim, either: see mayClaim. What other processes told about the coordinator is used only to
// report it, and to start an election when it ends. Grants and probes depend on the BEATs of the coordinator.
type recovery struct {
	phase recoveryPhase
	// unaware are the members that haven't answered yet. The procedure starts when there is none left, or at startAt.
	unaware election.IDs
	startAt election.Tick
	// learned is the coordinator that another process named, in coordinatorTerm.
	learned election.ID
}

type recoveryPhase uint8

const (
	// notRecovering: the input Recover hasn't arrived.
	notRecovering recoveryPhase = iota
	// announcing: the process has sent signs of life, and waits for the answers.
	announcing
	// recovering: the inner election runs the procedure.
	recovering
	recovered
)

func (r *recovery) encode(b []byte, now election.Tick) []byte {
	b = append(b, byte(r.phase))
	b = r.unaware.Encode(b)
	b = election.AppendMoment(b, r.startAt, now)
	return election.AppendNumber(b, uint64(r.learned))
}

// active reports whether the process recovers now.
func (r *recovery) active() bool { return r.phase == announcing || r.phase == recovering }

// finish ends the recovery. What the process has learned is outdated.
func (r *recovery) finish() {
	if r.active() {
		r.phase = recovered
	}
	r.unaware, r.startAt, r.learned = nil, election.Never, election.None
}

// recover begins the recovery with a PROBE to all members. Otherwise those that suspect this process would exclude it:
// a ring skips suspects. On another connection the first message of the procedure could overtake a PROBE, so the
// process waits until all members have answered, up to the reply timeout.
func (m *Machine) recover(kind election.InputKind, out *election.Output) {
	if kind != election.Recover || m.recovery.phase != notRecovering || m.role != Follower {
		out.Emit(election.Refused, m.highestTerm, m.cfg.Self)
		return
	}
	m.recovery.phase, m.recovery.startAt = announcing, m.now+m.cfg.Timing.Reply
	m.eachMember(func(id election.ID) {
		if id != m.cfg.Self {
			m.recovery.unaware.Add(id)
			m.sendProbe(id, out)
		}
	})
}

// recordAwareness records that a member has answered the PROBE.
func (m *Machine) recordAwareness(id election.ID) {
	if m.recovery.unaware.Remove(id) && len(m.recovery.unaware) == 0 {
		m.recovery.startAt = m.now
	}
}

// startRecovery starts the procedure of the inner election, unless an election has reached this process before: that
// tells it the same. Its term is above those of earlier elections, as far as the members have answered: they ignore
// messages of earlier ones.
func (m *Machine) startRecovery(out *election.Output) {
	m.recovery.phase, m.recovery.unaware, m.recovery.startAt = recovering, nil, election.Never
	if !m.inner.Status().Electing {
		m.stepInner(election.Input{Kind: election.Recover, Term: max(m.nextTerm(), m.highestTerm+1)}, out)
	}
}

// mayClaim reports whether this process may claim the office after it won an election. The win of a recovering process,
// or of one that follows a coordinator, is a request to hand over instead: see handleAnnouncement.
func (m *Machine) mayClaim() bool {
	return !m.recovery.active() && m.coordinator == election.None
}

// receiveElection handles a message of the inner election.
func (m *Machine) receiveElection(in *election.Input, out *election.Output) {
	msg, before, from := &in.Message, m.recovery.phase, len(out.Send)
	if !msg.Kind.Counts() || !m.withinReach(msg.Term) {
		out.Emit(election.Refused, msg.Term, msg.From)
		return
	}
	if msg.Kind == election.Inquiry {
		m.alignInner(out)
	}
	m.stepInner(*in, out)
	answered := before == recovering && m.recovery.phase == recovered // the inner election asked for this
	switch msg.Kind {
	case election.Request, election.Inquiry:
		m.completeAnswers(out.Send[from:])
	case election.Table:
		if answered {
			m.learnCoordinator(msg, out)
			m.learnTable(msg, out)
		}
	case election.Reply:
		if answered {
			m.learnCoordinator(msg, out)
		}
	case election.Coordinator, election.NewCoordinator:
		m.handleAnnouncement(msg)
	default:
	}
}

// handleAnnouncement handles the announcement of a higher process while this one is coordinator. The announced process
// doesn't claim the office, so that is a request to hand it over. The BEAT informs that process of the coordinator. Its
// answer says whether it is ready; if it is, considerHandOver applies the policy.
func (m *Machine) handleAnnouncement(msg *election.Message) {
	if m.role >= Holder && m.isMember(msg.Subject) && m.roster.Outranks(msg.Subject, m.cfg.Self) {
		m.beatAt = m.now
	}
}

// alignInner makes the inner election name the coordinator of the office, which need
// not be the process that won the last election.
func (m *Machine) alignInner(out *election.Output) {
	inner := m.inner.Status()
	if inner.Coordinator == m.coordinator {
		return
	}
	if m.coordinator != election.None {
		m.informInner(m.coordinator, out)
		return
	}
	m.stepInner(election.Input{Kind: election.Follow, Term: inner.Term}, out)
}

// completeAnswers makes the answers of the inner election to a recovering process
// report the coordinator and the table of the office, as Status and Rows do.
func (s *state) completeAnswers(messages []election.Message) {
	for i := range messages {
		msg := &messages[i]
		switch {
		case msg.Kind == election.Table:
			msg.Subject, msg.List, msg.Hold.Version = s.coordinator, s.tableExceptions(), s.roster.Version
		case msg.Kind != election.Reply || s.role < Holder:
			continue
		}
		if s.coordinator != election.None {
			msg.Term, msg.Hold.Held = s.coordinatorTerm, true
		}
	}
}

// tableExceptions returns the rows of the process status table that differ from what the coordinator's rank implies.
func (s *state) tableExceptions() []election.ID {
	table := election.NewStatusTable(s.roster, s.coordinator)
	for _, member := range s.roster.Ring() {
		table.Mark(member.ID, s.detector.Suspects(member.ID))
	}
	return table.Exceptions()
}

// learnCoordinator stores which process is coordinator, as another process reports it.
func (m *Machine) learnCoordinator(msg *election.Message, out *election.Output) {
	id := msg.Subject
	if !msg.Hold.Held || m.coordinator != election.None || id == m.cfg.Self || m.roster.Priority(id) == 0 ||
		msg.Term < m.coordinatorTerm {
		return
	}
	m.recovery.learned, m.coordinatorTerm = id, msg.Term
	m.vacancy.since = m.now // answers to earlier probes don't make this term a false one
	m.see(msg.Term)
	out.Emit(election.Learned, msg.Term, id)
}

// learnTable suspects the processes that have crashed according to a TABLE, until they send a sign of life or the
// coordinator reports that they are alive. The rows of a table depend on the member list.
func (m *Machine) learnTable(msg *election.Message, out *election.Output) {
	if m.coordinator != election.None || msg.Hold.Version != m.roster.Version {
		return
	}
	table := election.NewStatusTable(m.roster, election.None)
	table.Copy(msg.Subject, msg.List)
	for _, member := range m.roster.Ring() {
		id := member.ID
		if table.Crashed(id) && id != m.cfg.Self && m.peers[id].heardUntil <= m.now {
			m.suspect(id, out)
		}
	}
}

// takesForCoordinator reports whether this process follows another one, or has learned that it is coordinator.
func (m *Machine) takesForCoordinator(id election.ID) bool {
	return id == m.coordinator || m.role == Follower && id == m.recovery.learned
}

// reportedCoordinator is the coordinator that this process reports: the one that it
// follows, or the one that it learned about while it has no reason to doubt that.
func (m *Machine) reportedCoordinator() election.ID {
	learned := m.recovery.learned
	if m.role != Follower || !m.isMember(learned) || m.detector.Suspects(learned) ||
		m.peers[learned].resignedTerm >= m.coordinatorTerm {
		return m.coordinator
	}
	return learned
}
