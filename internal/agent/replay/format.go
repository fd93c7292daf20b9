package replay

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The types of a step have the fields of those of the core, with short names in JSON. Go
// converts between them only while they have the same fields, so a new field of the core
// can't be left out.

// header is the first line of a trace.
type header struct {
	Group     string `json:"group"`
	Agent     string `json:"agent"`
	Algorithm string `json:"algorithm"`
	// Origin is the moment of tick 0, on a clock that all processes of the machine share.
	Origin int64 `json:"origin"`
	// Names are the names of the processes by ID.
	Names  []string `json:"names"`
	Office settings `json:"office"`
}

// settings is office.Config. Its own fields hide those with their names, which JSON can't have.
type settings struct {
	office.Config

	Roster *roster
	// NewElection follows from the algorithm, and OnTransition is only for tests.
	NewElection, OnTransition *struct{} `json:",omitempty"`
}

// roster is election.Roster.
type roster struct {
	Version  uint32            `json:"version"`
	Ring     []election.Member `json:"ring"`
	Previous *roster           `json:"previous,omitempty"`
	Departed []election.ID     `json:"departed,omitempty"`
	Floor    election.Term     `json:"floor,omitempty"`
}

func newRoster(r *election.Roster) *roster {
	if r == nil {
		return nil
	}
	return &roster{Version: r.Version, Ring: r.Ring(), Previous: newRoster(r.Previous), Departed: r.Departed, Floor: r.Floor}
}

func (r *roster) toElection() (*election.Roster, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // Most inputs have no roster.
	}
	list, err := election.NewRoster(r.Version, r.Ring)
	if err != nil || r.Previous == nil {
		return list, err
	}
	previous, err := r.Previous.toElection()
	if err != nil {
		return nil, err
	}
	return list.Succeed(previous, r.Floor, r.Departed...), nil
}

// step is a line of a trace: an input and the output that results from it.
type step struct {
	input

	Roster  *roster  `json:"roster,omitempty"`
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

// input is election.Input.
type input struct {
	Kind       election.InputKind `json:"kind"`
	Ineligible bool               `json:"ineligible,omitempty"`
	Peer       election.ID        `json:"peer,omitempty"`
	Life       uint32             `json:"life,omitempty"`
	Now        election.Tick      `json:"now"`
	Term       election.Term      `json:"term,omitempty"`
	Roster     *election.Roster   `json:"-"` // in the step
	Timing     *election.Timing   `json:"timing,omitempty"`
	Message    election.Message   `json:"-"` // in the step
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

func newStep(in *election.Input, out *election.Output, m election.Machine) step {
	s := step{input: input(*in), Roster: newRoster(in.Roster)}
	if in.Message.Kind != election.NoKind {
		m := message(in.Message)
		s.Message = &m
	}
	s.setOutput(out, m)
	return s
}

func (s *step) setOutput(out *election.Output, m election.Machine) {
	s.Send, s.Events, s.Status, s.Deadline = nil, nil, status(m.Status()), m.Deadline()
	for _, m := range out.Send {
		s.Send = append(s.Send, message(m))
	}
	for _, e := range out.Events {
		s.Events = append(s.Events, event(e))
	}
}

// toElection returns the input of a step.
func (s *step) toElection() (election.Input, error) {
	in := election.Input(s.input)
	if s.Message != nil {
		in.Message = election.Message(*s.Message)
		in.Message.List = slices.Clone(in.Message.List) // The machine owns it.
	}
	list, err := s.Roster.toElection()
	in.Roster = list
	return in, err
}
