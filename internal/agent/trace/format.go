package trace

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The types of a step have the fields of those of the core, with short names in JSON. Go
// converts between them only while they have the same fields, so a new field of the core
// can't be left out.

// Header is the first line of a trace.
type Header struct {
	Group     string `json:"group"`
	Agent     string `json:"agent"`
	Algorithm string `json:"algorithm"`
	// Origin is the moment of tick 0, on a clock that all processes of the machine share.
	Origin int64 `json:"origin"`
	// Names are the names of the processes by ID.
	Names  []string `json:"names"`
	Office Settings `json:"office"`
}

// Settings is office.Config. Its own fields hide those with their names, which JSON can't have.
type Settings struct {
	office.Config

	Roster *Roster
	// NewElection follows from the algorithm, and OnTransition is only for tests.
	NewElection, OnTransition *struct{} `json:",omitempty"`
}

// Roster is election.Roster.
type Roster struct {
	Version  uint32            `json:"version"`
	Ring     []election.Member `json:"ring"`
	Previous *Roster           `json:"previous,omitempty"`
	Departed []election.ID     `json:"departed,omitempty"`
	Floor    election.Term     `json:"floor,omitempty"`
}

func newRoster(r *election.Roster) *Roster {
	if r == nil {
		return nil
	}
	return &Roster{Version: r.Version, Ring: r.Ring(), Previous: newRoster(r.Previous), Departed: r.Departed, Floor: r.Floor}
}

// Step is a line of a trace: an input and the output that results from it.
type Step struct {
	Input

	Roster  *Roster  `json:"roster,omitempty"`
	Message *message `json:"message,omitempty"`
	// Settings are new settings. Then there is no input other than the time.
	Settings *office.Settings `json:"settings,omitempty"`
	// Names are the names of the processes by ID, if there are new ones.
	Names  []string  `json:"names,omitempty"`
	Send   []message `json:"send,omitempty"`
	Events []event   `json:"events,omitempty"`
	// Status and Deadline are those after the step.
	Status   status        `json:"status"`
	Deadline election.Tick `json:"deadline"`
}

// Input is election.Input.
type Input struct {
	Kind       election.InputKind `json:"kind"`
	Ineligible bool               `json:"ineligible,omitempty"`
	Peer       election.ID        `json:"peer,omitempty"`
	Life       uint32             `json:"life,omitempty"`
	Now        election.Tick      `json:"now"`
	Term       election.Term      `json:"term,omitempty"`
	Roster     *election.Roster   `json:"-"` // in the Step
	Timing     *election.Timing   `json:"timing,omitempty"`
	Message    election.Message   `json:"-"` // in the Step
}

// message is election.Message.
type message struct {
	Kind    election.Kind `json:"kind"`
	From    election.ID   `json:"from"`
	To      election.ID   `json:"to"`
	Term    election.Term `json:"term,omitempty"`
	Lamport uint64        `json:"lamport,omitempty"`
	Subject election.ID   `json:"subject,omitempty"`
	Origin  election.ID   `json:"origin,omitempty"`
	Hops    uint32        `json:"hops,omitempty"`
	List    []election.ID `json:"list,omitempty"`
	Hold    election.Hold `json:"hold,omitzero"`
}

// status is election.Status.
type status struct {
	Coordinator election.ID    `json:"coordinator,omitempty"`
	Term        election.Term  `json:"term,omitempty"`
	Electing    bool           `json:"electing,omitempty"`
	Token       election.Token `json:"token,omitempty"`
	Until       election.Tick  `json:"until,omitempty"`
}

// event is election.Event.
type event struct {
	Kind  election.EventKind `json:"kind"`
	Peer  election.ID        `json:"peer,omitempty"`
	Term  election.Term      `json:"term,omitempty"`
	Token election.Token     `json:"token,omitempty"`
}

// NewStep returns the line of an input and its output.
func NewStep(in *election.Input, out *election.Output, m election.Machine) Step {
	s := Step{Input: Input(*in), Roster: newRoster(in.Roster)}
	if in.Message.Kind != election.NoKind {
		m := message(in.Message)
		s.Message = &m
	}
	s.SetOutput(out, m)
	return s
}

// SetOutput replaces the output.
func (s *Step) SetOutput(out *election.Output, m election.Machine) {
	s.Send, s.Events, s.Status, s.Deadline = nil, nil, status(m.Status()), m.Deadline()
	for _, m := range out.Send {
		s.Send = append(s.Send, message(m))
	}
	for _, e := range out.Events {
		s.Events = append(s.Events, event(e))
	}
}
