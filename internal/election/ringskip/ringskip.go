// Package ringskip is the ring election of [SKR5302] and [UNIMORE]. One list
// goes round the ring and every process appends itself. Then the highest
// process on the list goes round as the coordinator. Dead successors are
// skipped.
//
// Assumptions: links are FIFO. Every process knows the whole ring, and detects
// in time that its successor doesn't respond.
//
// Messages: m ELECTION and m COORDINATOR for each initiator, where m is the
// number of live processes. Two concurrent elections elect the same process.
//
// Not guaranteed: that there is one coordinator, and that an election has an
// outcome if processes fail during it. Then its initiator starts again.
package ringskip

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Machine is one process of the ring.
type Machine struct {
	election.Ring
}

// New returns the process that c describes.
func New(c election.Config) (election.Machine, error) {
	r, err := election.NewRing(c)
	if err != nil {
		return nil, err
	}
	return &Machine{Ring: r}, nil
}

// Step handles one input.
func (m *Machine) Step(in election.Input, out *election.Output) {
	switch in.Kind {
	case election.TimePassed:
		if in.Now >= m.Due {
			m.start(m.RestartInput(in.Now), out)
		}
	case election.Receive:
		m.receive(&in.Message, in.Now, out)
	case election.Campaign, election.Recover:
		m.start(in, out)
	default:
		m.HandleRing(&in, out)
	}
}

func (m *Machine) start(in election.Input, out *election.Output) {
	if m.Begin(&in, out) {
		m.Forward(out, election.Message{
			Kind: election.Election, Term: m.Term, Origin: m.Self, Subject: in.Peer, List: []election.ID{m.Self},
		})
	}
}

func (m *Machine) receive(msg *election.Message, now election.Tick, out *election.Output) {
	if !m.AcceptCurrent(msg, out) {
		return
	}
	m.ObserveTerm(msg, now)
	switch msg.Kind {
	case election.Election:
		m.appendSelf(msg, now, out)
	case election.Coordinator:
		m.HandleAnnouncement(msg, out)
	case election.Stale:
	default:
		out.Emit(election.Refused, msg.Term, msg.From)
	}
}

// appendSelf appends the process to the list. If the list has come back to its
// initiator, it ends the round.
func (m *Machine) appendSelf(msg *election.Message, now election.Tick, out *election.Output) {
	if slices.Contains(msg.List, m.Self) {
		if msg.Origin == m.Self {
			m.close(msg, out)
		}
		return // otherwise its origin has failed, and the list has been round the ring without success
	}
	next := *msg
	if m.Eligible() && len(msg.List) < m.Roster.Len() {
		next.List = append(slices.Clone(msg.List), m.Self)
	}
	m.Forward(out, next)
	m.WaitForOutcome(msg.Subject, now)
}

// close announces the highest process on the list. A list that was sent to two successors
// comes back twice. It is announced again only if a higher process is on it.
func (m *Machine) close(msg *election.Message, out *election.Output) {
	high := m.Roster.HighestOf(m.Self, msg.List)
	higher := m.Eligible() && m.KnowsCoordinatorOf(m.Term) && m.Roster.Outranks(high, m.Coordinator)
	if m.OwnTerm != m.Term && !higher {
		return
	}
	m.OwnTerm = 0
	m.RecordOutcome(high, m.Term, out)
	m.Forward(out, election.Message{Kind: election.Coordinator, Term: m.Term, Origin: m.Self, Subject: high})
}

// Deadline returns when the election must be over.
func (m *Machine) Deadline() election.Tick { return m.Due }

// Status returns what the process knows.
func (m *Machine) Status() election.Status { return m.RingStatus() }

// Rows appends the table that follows from the coordinator.
func (m *Machine) Rows(rows []election.Row) []election.Row { return m.CoordinatorRows(rows) }

// Clone returns an independent copy.
func (m *Machine) Clone() election.Machine {
	c := *m
	c.Ring = m.CloneRing()
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	return m.EncodeRing(b, now)
}
