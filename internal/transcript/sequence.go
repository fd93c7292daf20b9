package transcript

import (
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// MaxLifelines is the most lifelines of a Sequence.
const MaxLifelines = 50

// Sequence is an election as a sequence diagram, for a program that draws it.
type Sequence struct {
	Members []Lifeline     `json:"members,omitempty"`
	Steps   []SequenceStep `json:"steps,omitempty"`
	// Omitted is the number of further steps.
	Omitted int `json:"omitted,omitempty"`
}

// Lifeline is a member.
type Lifeline struct {
	Pod  string `json:"pod"`
	Down bool   `json:"down,omitempty"`
}

// SequenceStep is a message, or a note on what a member found out. From and To are indexes
// of lifelines, and equal in a note.
type SequenceStep struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Kind is that of the message, or a short form of the note.
	Kind string `json:"kind"`
	Text string `json:"text"`
	// Millis is when the message was sent.
	Millis float64 `json:"millis"`
	Note   bool    `json:"note,omitempty"`
	// Lost is whether the message wasn't received. Office is whether it belongs to the
	// office, and not to the election.
	Lost   bool `json:"lost,omitempty"`
	Office bool `json:"office,omitempty"`
}

// noteLabels are short forms of the notes. The name of the event isn't one: next to a member,
// crashed would mean that this member crashed.
var noteLabels = map[election.EventKind]string{
	election.Started: "starts", election.Elected: "wins", election.MarkedCrashed: "notes crash", election.Skipped: "skips",
	election.TenureStarted: "holds office", election.TenureLost: "loses office", election.StopRequested: "stops", election.OfficeResigned: "resigns",
}

// sequencer draws the steps of an election as a Sequence.
type sequencer struct {
	*numbered

	// order has the agents from left to right. If there are too many, those that do something first are shown.
	order, shown []election.ID
	drawn        Sequence
}

// Sequence returns the messages, and what the agents found out, as a sequence diagram.
func (e *Election) Sequence() Sequence {
	s := sequencer{numbered: e.number()}
	if s.order = s.ring(); len(s.order) <= MaxLifelines {
		s.shown = s.order
	}
	s.replay(s.watch)
	lifelines := map[int]int{} // by ID
	for _, id := range s.order {
		if slices.Contains(s.shown, id) {
			lifelines[int(id)] = len(s.drawn.Members)
			s.drawn.Members = append(s.drawn.Members, Lifeline{Pod: s.name(id), Down: s.down(id)})
		}
	}
	for i := range s.drawn.Steps {
		step := &s.drawn.Steps[i]
		step.From, step.To = lifelines[step.From], lifelines[step.To]
	}
	return s.drawn
}

func (s *sequencer) watch(step Step) {
	at := Millis(step.At)
	for _, e := range step.Output.Events {
		if text := noteText(s.name, step.Process, e); text != "" {
			s.add(step.Process, step.Process, SequenceStep{Kind: noteLabels[e.Kind], Text: text, Millis: at, Note: true})
		}
	}
	for i := range step.Output.Send {
		m := &step.Output.Send[i]
		text := m.DescribeWith(s.name)
		if note := s.noteArrival(m); note != "" {
			text += " (" + note + ")"
		}
		s.add(m.From, m.To, SequenceStep{
			Kind: m.Kind.String(), Text: text, Millis: at, Lost: s.lost(m), Office: !m.Kind.Counts(),
		})
	}
}

func (s *sequencer) add(from, to election.ID, step SequenceStep) {
	if len(s.drawn.Steps) == MaxArrows || !s.shows(from) || !s.shows(to) {
		s.drawn.Omitted++
		return
	}
	step.From, step.To = int(from), int(to)
	s.drawn.Steps = append(s.drawn.Steps, step)
}

// shows reports whether an agent has a lifeline, and adds it if there is room.
func (s *sequencer) shows(id election.ID) bool {
	if slices.Contains(s.shown, id) {
		return true
	}
	if len(s.shown) >= MaxLifelines || !slices.Contains(s.order, id) {
		return false
	}
	s.shown = append(s.shown, id)
	return true
}
