// Package journal defines what an agent reports of recent elections: its journal. It has
// the messages that the agent received and sent, and what it found out, step by step.
//
// The journals of all members of a group together show how an election went. A message
// is identified by its sender, the life of the sender, and its Lamport timestamp, so that
// the step that received it follows the step that sent it, whatever the clocks say.
//
// Kinds have the names that logs and transcripts use. A reader must expect kinds and fields
// that it doesn't know: they belong to a newer agent.
package journal

import (
	"iter"
	"time"
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
}

// Member is a member of the group.
type Member struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
}

// Step is one input of the agent's machine and what resulted from it.
type Step struct {
	// At is on the clock of the agent. The times of one journal are comparable even if
	// the wall clock was set in between.
	At time.Time `json:"at"`
	// Input is the kind of the input, such as receive, gone or tick.
	Input string `json:"input"`
	// Peer is the process that the input is about, or "".
	Peer string `json:"peer,omitempty"`
	// Cause is why the coordinator gives up the office in this step, or "". It is a control.EndCause.
	Cause string `json:"cause,omitempty"`
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

// Messages visits the message that the step received, and those that it sent.
func (s *Step) Messages() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		if s.Message != nil && !yield(s.Message) {
			return
		}
		for i := range s.Sent {
			if !yield(&s.Sent[i]) {
				return
			}
		}
	}
}
