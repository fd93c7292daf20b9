// Package statustable is the improved bully election ([ImprovedBully]). Every process stores the process status table,
// and sends ELECTION only to the highest process that isn't CRASHED in its table. A recovered process requests the
// table of a neighbor instead of starting an election.
//
// Assumptions: those of the bully. In addition, the table is right about which
// processes have crashed, or wrongly shows a dead process as normal.
//
// Messages: n-2 when the second-highest process finds the coordinator dead; n when another process does. Each process
// found dead on the way down adds one ELECTION and one wait of T. Recovery takes n+1.
//
// Not guaranteed: that there is one coordinator, as with the bully. A process that is alive but CRASHED in the tables
// isn't informed of a new coordinator until it recovers. Package office corrects such rows by signs of life.
package statustable

import "github.com/conclave-dev/conclave/internal/election"

type phase uint8

const (
	idle phase = iota
	// asking: ELECTION has been sent to asked, an OK is due within T.
	asking
	// promised: an OK has arrived, COORDINATOR is due within T'.
	promised
	// requesting: REQUEST has been sent to asked, a TABLE is due within T.
	requesting
)

// Machine is one process of an improved bully election.
type Machine struct {
	election.Process

	table    election.StatusTable
	phase    phase
	deadline election.Tick
	// asked is the process whose answer is due.
	asked election.ID
	// neighborsTried counts the neighbors whose table was requested.
	neighborsTried int
	// minTerm is the lowest term to use after a recovery.
	minTerm election.Term
	// announced is the last term in which the process announced itself.
	announced election.Term
}

// New returns the process that c describes.
func New(c election.Config) (election.Machine, error) {
	p, err := election.NewProcess(c)
	if err != nil {
		return nil, err
	}
	return &Machine{Process: p, table: election.NewStatusTable(c.Roster, c.Coordinator), deadline: election.Never}, nil
}

// Step handles one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	switch in.Kind {
	case election.TimePassed:
		m.timeout(in.Now, out)
	case election.Receive:
		m.receive(&in.Message, in.Now, out)
	case election.Campaign:
		m.start(in.Peer, in.Term, in.Now, out)
	case election.Recover:
		m.neighborsTried, m.minTerm = 0, in.Term
		m.request(in.Now, out)
	default:
		m.handleOther(&in, out)
	}
}

func (m *Machine) handleOther(in *election.Input, out *election.Output) {
	m.HandleCommon(in, out)
	switch in.Kind {
	case election.Suspect:
		m.table.Mark(in.Peer, in.Peer != m.Self)
	case election.Restore:
		m.table.Mark(in.Peer, false)
	case election.Follow:
		if m.Roster.Has(in.Peer) {
			if m.phase != requesting {
				m.becomeIdle()
			}
			m.setCoordinator(in.Peer)
			m.restoreUnsuspected()
		}
	case election.Undelivered:
		if m.phase == requesting && in.Message.Kind == election.Request && in.Message.To == m.asked {
			m.request(in.Now, out)
		}
	case election.Adopt:
		m.table.Adopt(m.Roster)
	default:
	}
	if m.phase != requesting && !m.Eligible() || !m.Roster.Has(m.Self) {
		m.becomeIdle()
	}
}

// setCoordinator makes id the coordinator in the table. As far as the others can know, processes that outrank it have
// crashed; but this process itself has not. Of the processes below it, the suspects have crashed.
func (m *Machine) setCoordinator(id election.ID) {
	m.table.SetCoordinator(id)
	for _, s := range m.Suspects {
		if s != id {
			m.table.Mark(s, true)
		}
	}
	if id != m.Self {
		m.table.Mark(m.Self, false)
	}
}

// restoreUnsuspected sets the rows of the processes below the coordinator to those of the failure
// detector. This process may have marked others as crashed only because they didn't answer: while all
// processes recover, none of them sends its table.
func (m *Machine) restoreUnsuspected() {
	for _, id := range m.table.Exceptions() {
		if !m.Suspects.Has(id) {
			m.table.Mark(id, false)
		}
	}
}

// start begins an election in a new term.
func (m *Machine) start(dead election.ID, least election.Term, now election.Tick, out *election.Output) {
	m.markCrashed(dead, out)
	if !m.Eligible() || !m.NextTerm(least) {
		m.becomeIdle()
		return
	}
	out.Emit(election.Started, m.Term, dead)
	m.ask(now, out)
}

// ask sends ELECTION to the highest process that may be alive. If that is this process, it announces itself.
func (m *Machine) ask(now election.Tick, out *election.Output) {
	m.table.Mark(m.Self, false)
	highest := m.table.Highest()
	if !m.Roster.Outranks(highest, m.Self) {
		m.announce(out)
		return
	}
	m.phase, m.asked, m.deadline = asking, highest, now+m.Timing.Reply
	dead := election.None
	if m.table.Crashed(m.Coordinator) {
		dead = m.Coordinator
	}
	m.Send(out, election.Message{Kind: election.Election, To: highest, Term: m.Term, Subject: dead})
}

// announce makes this process coordinator and notifies all processes below it that aren't CRASHED.
func (m *Machine) announce(out *election.Output) {
	m.announceTo(out, m.Roster.Ranked()[m.Roster.Rank(m.Self)+1:])
}

func (m *Machine) announceTo(out *election.Output, to []election.Member) {
	m.becomeIdle()
	m.announced = m.Term
	m.setCoordinator(m.Self)
	m.Recognize(m.Self, m.Term, out)
	for _, other := range to {
		if other.ID != m.Self && !m.table.Crashed(other.ID) {
			m.Send(out, election.Message{Kind: election.Coordinator, To: other.ID, Term: m.Term, Subject: m.Self})
		}
	}
}

func (m *Machine) becomeIdle() { m.phase, m.deadline, m.asked = idle, election.Never, election.None }

func (m *Machine) markCrashed(id election.ID, out *election.Output) {
	if id != m.Self && m.table.Mark(id, true) {
		out.Emit(election.MarkedCrashed, m.Term, id)
	}
}

func (m *Machine) timeout(now election.Tick, out *election.Output) {
	if now < m.deadline {
		return
	}
	switch m.phase {
	case asking:
		m.markCrashed(m.asked, out)
		m.ask(now, out)
	case promised:
		// The process that sent the OK failed before it announced itself.
		m.start(m.asked, 0, now, out)
	case requesting:
		m.markCrashed(m.asked, out)
		m.request(now, out)
	case idle:
	}
}

// request requests the table of the next neighbor on the ring. If no neighbor
// is left, it starts an election, unless it must not: see Config.NoPreemption.
func (m *Machine) request(now election.Tick, out *election.Output) {
	for m.neighborsTried < m.Roster.Len()-1 {
		m.neighborsTried++
		neighbour := m.Roster.After(m.Self, m.neighborsTried)
		if neighbour == election.None || m.Suspects.Has(neighbour) {
			continue
		}
		m.phase, m.asked, m.deadline = requesting, neighbour, now+m.Timing.Reply
		m.Send(out, election.Message{Kind: election.Request, To: neighbour, Term: m.Term})
		return
	}
	if m.NoPreemption {
		m.becomeIdle()
		return
	}
	m.start(election.None, m.minTerm, now, out)
}

func (m *Machine) receive(msg *election.Message, now election.Tick, out *election.Output) {
	if msg.Kind == election.Request || msg.Kind == election.Table || msg.Kind == election.Update {
		if m.Accept(msg, out) {
			m.handleRecovery(msg, now, out) // a recovering process may have any term, or none
		}
		return
	}
	if !m.AcceptCurrent(msg, out) {
		return
	}
	if msg.Term > m.Term {
		m.observeTerm(msg, now)
	}
	switch msg.Kind {
	case election.Election:
		m.handleElection(msg, out)
	case election.OK:
		if m.phase == asking && msg.From == m.asked {
			m.phase, m.deadline = promised, now+m.Timing.Takeover
		}
	case election.Coordinator:
		m.handleCoordinator(msg, out)
	case election.Stale:
	default:
		out.Emit(election.Refused, msg.Term, msg.From)
	}
}

// observeTerm adopts the newer term of a message. That ends an election of this process.
//
// A message that only shows that there is a newer term gives the process a reason to wait for the outcome of that
// term's election. It must not start an election in a yet newer term at once. For example, consider two processes that
// each start an election. If each restarted as soon as it saw the other's term, the two could overtake each other
// forever.
func (m *Machine) observeTerm(msg *election.Message, now election.Tick) {
	waits := (m.phase == asking || m.phase == promised || m.Coordinator == m.Self) &&
		msg.Kind != election.Election && msg.Kind != election.Coordinator
	m.Term = msg.Term
	m.becomeIdle()
	if waits {
		m.phase, m.deadline = promised, now+m.Timing.Takeover
	}
}

// handleElection answers an ELECTION with OK and announces this process, unless it has already announced itself in this
// term or knows a higher coordinator of this term.
func (m *Machine) handleElection(msg *election.Message, out *election.Output) {
	if !m.Eligible() || !m.Roster.Outranks(m.Self, msg.From) {
		return
	}
	m.Send(out, election.Message{Kind: election.OK, To: msg.From, Term: m.Term})
	if m.announced == m.Term || m.KnowsCoordinatorOf(m.Term) && m.Roster.Outranks(m.Coordinator, m.Self) {
		return
	}
	out.Emit(election.Started, m.Term, msg.Subject)
	m.announce(out)
}

// handleCoordinator records the coordinator, or takes over from it if this process outranks it.
func (m *Machine) handleCoordinator(msg *election.Message, out *election.Output) {
	if m.Preempts(msg.From) {
		if m.NextTerm(0) {
			out.Emit(election.Started, m.Term, msg.From)
			m.takeOver(out)
		}
		return
	}
	if m.KnowsCoordinatorOf(msg.Term) && m.Roster.Outranks(m.Coordinator, msg.From) {
		return
	}
	m.becomeIdle()
	m.setCoordinator(msg.From)
	m.Recognize(msg.From, msg.Term, out)
}

// takeOver announces this process to all others that aren't CRASHED, whatever their rank ([ImprovedBully], 4.4).
func (m *Machine) takeOver(out *election.Output) { m.announceTo(out, m.Roster.Ranked()) }

// handleRecovery handles the messages of a recovery.
func (m *Machine) handleRecovery(msg *election.Message, now election.Tick, out *election.Output) {
	switch msg.Kind {
	case election.Request:
		m.handleRequest(msg, out)
	case election.Table:
		m.handleTable(msg, out)
	default: // Update
		if msg.Term > m.Term {
			m.observeTerm(msg, now)
		}
		if m.table.Mark(msg.From, false) {
			out.Emit(election.MarkedNormal, m.Term, msg.From)
		}
	}
}

// handleRequest sends a copy of the table to a recovering process.
func (m *Machine) handleRequest(msg *election.Message, out *election.Output) {
	if m.phase == requesting {
		return // this process recovers itself, and its table isn't valid
	}
	m.Send(out, election.Message{
		Kind: election.Table, To: msg.From, Term: m.Term,
		Subject: m.table.Coordinator(), List: m.table.Exceptions(),
	})
}

// handleTable copies a neighbor's table ([ImprovedBully], 4.3 and 4.4).
func (m *Machine) handleTable(msg *election.Message, out *election.Output) {
	if m.phase != requesting || msg.From != m.asked {
		return
	}
	m.becomeIdle()
	m.Term = max(m.Term, msg.Term)
	m.table.Copy(msg.Subject, msg.List)
	leader := m.table.Coordinator()
	known := leader != election.None && leader != m.Self
	switch {
	case known && !m.Preempts(leader), m.NoPreemption:
		if known {
			m.Recognize(leader, msg.Term, out)
		}
		m.rejoin(out)
	case m.Eligible() && m.NextTerm(m.minTerm):
		out.Emit(election.Started, m.Term, leader)
		m.takeOver(out)
	}
}

// rejoin tells all others that aren't CRASHED to mark this process as NORMAL.
func (m *Machine) rejoin(out *election.Output) {
	m.table.Mark(m.Self, false)
	for _, other := range m.Roster.Ring() {
		if other.ID != m.Self && !m.table.Crashed(other.ID) {
			m.Send(out, election.Message{Kind: election.Update, To: other.ID, Term: m.Term})
		}
	}
}

// Deadline returns when the wait ends.
func (m *Machine) Deadline() election.Tick { return m.deadline }

// Status returns what the process knows.
func (m *Machine) Status() election.Status {
	return election.Status{Coordinator: m.Coordinator, Term: m.Term, Electing: m.phase != idle}
}

// Rows appends the process status table.
func (m *Machine) Rows(rows []election.Row) []election.Row { return m.table.Rows(rows) }

// Clone returns an independent copy.
func (m *Machine) Clone() election.Machine {
	c := *m
	c.Process = m.CloneProcess()
	c.table = m.table.Clone()
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	b = m.EncodeProcess(b)
	b = m.table.Encode(b)
	b = append(b, byte(m.phase))
	b = election.AppendMoment(b, m.deadline, now)
	b = election.AppendNumber(b, uint64(m.asked))
	b = election.AppendNumber(b, uint64(m.neighborsTried))
	b = election.AppendNumber(b, uint64(m.minTerm))
	return election.AppendNumber(b, uint64(m.announced))
}
