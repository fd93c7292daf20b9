// Package journal has what an agent records of elections, for people: its journal and its traces.
//
// The journal is the agent's part of recent elections: the messages that it received and sent, and what it found out,
// step by step. The journals of all members of a group together show how an election went (package transcript). A
// message is identified by its sender, the life of the sender, and its Lamport timestamp, so that the step that
// received it follows the step that sent it, whatever the clocks say. Kinds have the names that logs and transcripts
// use. A reader must expect kinds and fields that it doesn't know: they belong to a newer agent.
//
// An agent remembers its journal in a Ring, in memory. A Ring grows up to a fixed size. To record a step makes no
// system call and takes no lock, so that it doesn't delay a failover. Heartbeats that only repeat the last one
// aren't recorded: an idle agent compares a few numbers. What is recorded:
//
//   - every message of an election, in both directions
//   - the messages of the office: BEAT, GRANT, DENY and PROBE only if they differ from the
//     last one of their kind to or from that process since the last tenure ended
//   - every event of the machine, except that a message was outdated or refused
//   - inputs other than messages, and the passage of time if something resulted from it
//
// The ring overwrites the oldest entries. A restart of the agent, or joining the group
// again with other settings, loses them all.
//
// A trace is a file with the Record of each step of a group's machine, from which a developer can repeat an election
// step by step: see internal/testing/replay.
//
// These words have one meaning each, except for record:
//
//	word        package                        what it is for
//	record      journal                        what happened in one step of an agent's Machine
//	            agent/state                    what an agent stores of a group on its disk, to start again
//	            chaos                          one fault, and what was observed of the failover after it
//	journal     journal                        the agent's memory of recent elections; operators read it from
//	                                           running agents
//	transcript  transcript                     the journals of all agents of a group, merged: what
//	                                           kubectl conclave explain prints
//	trace       journal                        a file with all records; tests replay it to prove that nothing else
//	                                           has influenced the Machine
//	script      election/electiontest/script   commands that run the processes of a test by hand, with the
//	                                           expected outputs beside them
package journal

import (
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Path below a group: GET returns the Journal of the group.
const Path = "/journal"

// Journal is an agent's part of the recent elections of a group.
type Journal struct {
	Group string `json:"group"`
	Agent string `json:"agent"`
	// Life is the incarnation: it distinguishes this run of the agent from its others.
	Life      uint32 `json:"life"`
	Algorithm string `json:"algorithm"`
	Safety    string `json:"safety"`
	// Members are in the order of the ring.
	Members []Member `json:"members"`
	// At is when the journal was read, on the clock of the agent.
	At time.Time `json:"at"`
	// Omitted is the number of entries that newer ones have replaced.
	Omitted uint64 `json:"omitted"`
	Steps   []Step `json:"steps"`
	// Waits are how connections of clients waited for the last coordinators.
	Waits []control.Wait `json:"waits,omitempty"`
}

// Member is a member of the group.
type Member struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
}

// Step is one input of the agent's machine and what resulted from it.
type Step struct {
	// At is on the clock of the agent. The times of one journal are comparable even if the wall clock was set in between.
	At time.Time `json:"at"`
	// Input is the kind of the input, such as receive, gone or tick.
	Input string `json:"input"`
	// Peer is the process that the input is about, or "".
	Peer string `json:"peer,omitempty"`
	// Cause is why the coordinator gives up the office in this step, EndNone if it doesn't.
	Cause control.EndCause `json:"cause,omitempty"`
	// Message is the one that was received or not delivered.
	Message *Message  `json:"message,omitempty"`
	Events  []Event   `json:"events,omitempty"`
	Sent    []Message `json:"sent,omitempty"`
}

// Message is a message from one process to another.
type Message struct {
	Kind string `json:"kind"`
	From string `json:"from"`
	To   string `json:"to"`
	Term uint64 `json:"term"`
	// Lamport and Life are the sender's logical clock and incarnation.
	Lamport uint64 `json:"lamport"`
	Life    uint32 `json:"life"`
	// The other fields are those of the protocol between agents.
	Subject    string   `json:"subject,omitempty"`
	Origin     string   `json:"origin,omitempty"`
	Hops       uint32   `json:"hops,omitempty"`
	List       []string `json:"list,omitempty"`
	Held       bool     `json:"held,omitempty"`
	Ready      bool     `json:"ready,omitempty"`
	Ineligible bool     `json:"ineligible,omitempty"`
}

// Event is something that the machine found out or did.
type Event struct {
	Kind  string `json:"kind"`
	Peer  string `json:"peer,omitempty"`
	Term  uint64 `json:"term"`
	Token uint64 `json:"token,omitempty"`
}

// Clone returns a copy that another goroutine may read.
func (r *Ring) Clone() *Ring {
	clone := *r
	clone.repeats, clone.entries, clone.lists = repeats{}, slices.Clone(r.entries), slices.Clone(r.lists)
	return &clone
}

// Omitted returns the number of entries that newer ones have replaced.
func (r *Ring) Omitted() uint64 { return r.next - min(r.next, size) }

// Steps returns the steps, oldest first. The first one is complete: the rest of a step whose
// input was overwritten is left out. at converts a tick to a time.
func (r *Ring) Steps(name func(election.ID) string, at func(election.Tick) time.Time) []Step {
	steps := []Step{}
	for i := r.Omitted(); i < r.next; i++ {
		e := &r.entries[i%size]
		if e.what == inputEntry {
			step := Step{At: at(e.at), Input: election.InputKind(e.kind).String(), Peer: name(e.peer), Cause: e.cause}
			if e.message.kind != election.NoKind {
				m := r.export(&e.message, name)
				step.Message = &m
			}
			steps = append(steps, step)
			continue
		}
		if len(steps) == 0 {
			continue
		}
		step := &steps[len(steps)-1]
		if e.what == sentEntry {
			step.Sent = append(step.Sent, r.export(&e.message, name))
			continue
		}
		step.Events = append(step.Events, Event{
			Kind: election.EventKind(e.kind).String(), Peer: name(e.peer), Term: uint64(e.term), Token: uint64(e.token),
		})
	}
	return steps
}

func (r *Ring) export(m *message, name func(election.ID) string) Message {
	exported := Message{
		Kind: m.kind.String(), From: name(m.from), To: name(m.to), Term: uint64(m.term), Lamport: m.lamport, Life: m.life,
		Subject: name(m.subject), Origin: name(m.origin), Hops: m.hops, Held: m.held,
		Ready: m.ready, Ineligible: m.ineligible,
	}
	if r.nextList-m.listStart > listSize {
		return exported // Newer lists have replaced this one.
	}
	for i := range uint64(m.listLength) {
		exported.List = append(exported.List, name(r.lists[(m.listStart+i)%listSize]))
	}
	return exported
}
