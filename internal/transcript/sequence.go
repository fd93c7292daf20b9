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

// SequenceRecorder records a Sequence from the steps of an election.
type SequenceRecorder struct {
	// Order has the processes from left to right. If there are too many, those that do
	// something first are shown.
	Order []election.ID
	Names election.Names
	Down  func(election.ID) bool
	Lost  func(*election.Message) bool
	// Note returns what else there is to say about a message that is sent, or "".
	Note func(*election.Message) string

	shown   []election.ID
	steps   []recordedStep
	omitted int
}

type recordedStep struct {
	SequenceStep

	from, to election.ID
}

// Watch records one step.
func (r *SequenceRecorder) Watch(step Step) {
	at := Millis(step.At)
	for _, e := range step.Output.Events {
		if text := noteText(r.Names, step.Process, e); text != "" {
			r.add(step.Process, step.Process, SequenceStep{Kind: noteLabels[e.Kind], Text: text, Millis: at, Note: true})
		}
	}
	for i := range step.Output.Send {
		m := &step.Output.Send[i]
		text := m.DescribeWith(r.Names)
		if note := r.Note(m); note != "" {
			text += " (" + note + ")"
		}
		r.add(m.From, m.To, SequenceStep{Kind: m.Kind.String(), Text: text, Millis: at, Lost: r.Lost(m), Office: !m.Kind.Counts()})
	}
}

func (r *SequenceRecorder) add(from, to election.ID, s SequenceStep) {
	if len(r.steps) == MaxArrows || !r.shows(from) || !r.shows(to) {
		r.omitted++
		return
	}
	r.steps = append(r.steps, recordedStep{s, from, to})
}

// shows reports whether a process has a lifeline, and adds it if there is room.
func (r *SequenceRecorder) shows(id election.ID) bool {
	switch {
	case len(r.Order) <= MaxLifelines:
		return slices.Contains(r.Order, id)
	case slices.Contains(r.shown, id):
		return true
	case len(r.shown) == MaxLifelines || !slices.Contains(r.Order, id):
		return false
	}
	r.shown = append(r.shown, id)
	return true
}

// Sequence returns what was recorded.
func (r *SequenceRecorder) Sequence() Sequence {
	s := Sequence{Omitted: r.omitted}
	index := map[election.ID]int{}
	for _, id := range r.Order {
		if len(r.Order) <= MaxLifelines || slices.Contains(r.shown, id) {
			index[id] = len(s.Members)
			s.Members = append(s.Members, Lifeline{Pod: r.Names(id), Down: r.Down(id)})
		}
	}
	for _, recorded := range r.steps {
		step := recorded.SequenceStep
		step.From, step.To = index[recorded.from], index[recorded.to]
		s.Steps = append(s.Steps, step)
	}
	return s
}
