// Package ringskip is the ring election of seeds 001 and 003: one list goes
// round and every process appends itself, then the highest on it goes round as
// the coordinator. Dead successors are skipped.
//
// Assumptions: FIFO links; every process knows the whole ring, and learns in
// time when its successor doesn't respond.
//
// Messages: m ELECTION and m COORDINATOR for each initiator, m the live
// processes. Two elections at once elect the same process.
//
// Not guaranteed: one coordinator, and an outcome when processes fail during
// the election: then who started it starts again.
package ringskip

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Machine is one process of the ring.
type Machine struct {
	election.Ring
}

// New makes the process that c describes.
func New(c election.Config) (election.Machine, error) {
	r, err := election.NewRing(c)
	if err != nil {
		return nil, err
	}
	return &Machine{Ring: r}, nil
}

// Step takes one input.
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

// append puts the process on the list, or closes the circle.
func (m *Machine) appendSelf(msg *election.Message, now election.Tick, out *election.Output) {
	if slices.Contains(msg.List, m.Self) {
		if msg.Origin == m.Self && m.OwnTerm == m.Term {
			m.close(msg, out)
		}
		return // otherwise its origin is gone: it has been round for nothing
	}
	next := *msg
	if m.Eligible() && len(msg.List) < m.Roster.Len() {
		next.List = append(slices.Clone(msg.List), m.Self)
	}
	m.Forward(out, next)
	m.WaitForOutcome(msg.Subject, now)
}

// close turns the list into the announcement of the highest on it.
func (m *Machine) close(msg *election.Message, out *election.Output) {
	high := m.Roster.HighestOf(m.Self, msg.List)
	m.RecordOutcome(high, m.Term, out)
	m.Forward(out, election.Message{Kind: election.Coordinator, Term: m.Term, Origin: m.Self, Subject: high})
}

// Deadline is when the election must be over.
func (m *Machine) Deadline() election.Tick { return m.Due }

// Status says what the process knows.
func (m *Machine) Status() election.Status { return m.RingStatus() }

// Rows appends the table that the coordinator implies.
func (m *Machine) Rows(rows []election.Row) []election.Row { return m.CoordinatorRows(rows) }

// Clone is an independent copy.
func (m *Machine) Clone() election.Machine {
	c := *m
	c.Ring = m.CloneRing()
	return &c
}

// Encode appends the state to b.
func (m *Machine) Encode(b []byte, now election.Tick) []byte {
	return m.EncodeRing(b, now)
}
