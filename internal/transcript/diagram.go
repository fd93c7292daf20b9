package transcript

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
)

// The limits of a legible sequence diagram.
const (
	MaxArrows       = 300
	MaxParticipants = 40
)

// Mermaid draws an election as a sequence diagram in Mermaid's language. An arrow is drawn at the time its message is
// sent. Dotted arrows are messages of the office, which aren't counted. Arrows with a cross are lost messages.
type Mermaid struct {
	// Title describes the election.
	Title string
	// Ring has the processes in the order of the ring.
	Ring []election.ID
	// Names are those of the processes. By default, process 1 is P1.
	Names election.Names
	// Down reports whether a process is down, and Lost whether a message is lost.
	Down func(election.ID) bool
	Lost func(*election.Message) bool

	shown  []election.ID // participants, in the order of their appearance
	lines  []string
	arrows int
	// omitted is the number of messages without an arrow.
	omitted int
	// noteOwner is the process whose note is the last line, or None.
	noteOwner election.ID
}

// Watch draws one step.
func (d *Mermaid) Watch(step Step) {
	if step.Input.Kind == election.Recover {
		d.addNote(step.Process, d.label(step.Process)+" recovers")
	}
	for _, e := range step.Output.Events {
		if text := noteText(d.label, step.Process, e); text != "" && d.shows(e) {
			d.addNote(step.Process, text)
		}
	}
	for i := range step.Output.Send {
		d.addArrow(&step.Output.Send[i])
	}
}

// noteText returns the note for an event, or "" if the arrows show it already.
func noteText(label election.Names, id election.ID, e election.Event) string {
	name, peer := label(id), label(e.Peer)
	switch e.Kind {
	case election.Started:
		if e.Peer == election.None || e.Peer == id {
			return fmt.Sprintf("%s starts (term %d)", name, e.Term)
		}
		return fmt.Sprintf("%s starts, %s seems dead (term %d)", name, peer, e.Term)
	case election.Elected:
		return fmt.Sprintf("%s is coordinator (term %d)", name, e.Term)
	case election.MarkedCrashed:
		return fmt.Sprintf("%s marks %s crashed", name, peer)
	case election.Skipped:
		return fmt.Sprintf("%s skips %s", name, peer)
	case election.TenureStarted:
		return fmt.Sprintf("%s holds the office (term %d)", name, e.Term)
	case election.TenureLost:
		return name + " loses the office"
	case election.StopRequested:
		return name + " stops its application"
	case election.OfficeResigned:
		return name + " resigns"
	default:
		return ""
	}
}

// shows reports whether an event is part of the diagram. An event about a process for which there is no room isn't.
func (d *Mermaid) shows(e election.Event) bool {
	about := e.Kind == election.MarkedCrashed || e.Kind == election.Skipped
	return !about || len(d.shown) < MaxParticipants || slices.Contains(d.shown, e.Peer)
}

func (d *Mermaid) addNote(id election.ID, text string) {
	if d.arrows >= MaxArrows || !d.addParticipant(id) {
		return
	}
	if d.noteOwner == id {
		d.lines[len(d.lines)-1] += "<br/>" + text
		return
	}
	d.lines = append(d.lines, fmt.Sprintf("Note over P%d: %s", id, text))
	d.noteOwner = id
}

func (d *Mermaid) addArrow(m *election.Message) {
	if d.arrows >= MaxArrows || !d.addParticipant(m.From) || !d.addParticipant(m.To) {
		d.omitted++
		return
	}
	line := "->>"
	lost := d.Lost(m)
	switch {
	case lost && m.Kind.Counts():
		line = "-x"
	case lost:
		line = "--x"
	case !m.Kind.Counts():
		line = "-->>"
	}
	d.lines = append(d.lines, fmt.Sprintf("P%d%sP%d: %s%s term %d", m.From, line, m.To, m.Kind, d.content(m), m.Term))
	d.arrows++
	d.noteOwner = election.None
}

// content returns the content of a message that the arrow doesn't show.
func (d *Mermaid) content(m *election.Message) string {
	names := d.Names
	if names == nil {
		names = election.Numbers
	}
	switch m.Kind {
	case election.ElectMe, election.NewCoordinator, election.Elect, election.Inquiry, election.Reply:
		return "(" + names(m.Subject) + ")"
	case election.Election, election.Coordinator:
		if len(m.List) > 0 {
			return " " + names.List(m.List)
		}
		if m.Origin != election.None {
			return "(" + names(m.Subject) + ")"
		}
	default:
	}
	return ""
}

func (d *Mermaid) label(id election.ID) string {
	if d.Names == nil {
		return fmt.Sprintf("P%d", id)
	}
	return d.Names(id)
}

// addParticipant adds a process, if there is room. It reports whether the process is a participant.
func (d *Mermaid) addParticipant(id election.ID) bool {
	if slices.Contains(d.shown, id) {
		return true
	}
	if len(d.shown) == MaxParticipants {
		return false
	}
	d.shown = append(d.shown, id)
	return true
}

// WriteTo writes the diagram.
func (d *Mermaid) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	fmt.Fprintf(&b, "    title %s\n", d.Title)
	participants := d.participants()
	for _, id := range participants {
		mark := ""
		if d.Down(id) {
			mark = " (down)"
		}
		fmt.Fprintf(&b, "    participant P%d as %s%s\n", id, d.label(id), mark)
	}
	for _, line := range d.lines {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	if d.omitted > 0 {
		fmt.Fprintf(&b, "    Note over P%d,P%d: %d more messages and %d processes are omitted\n",
			participants[0], participants[len(participants)-1], d.omitted, len(d.Ring)-len(participants))
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// participants returns the participants in the order of the ring: all processes, if there is room.
func (d *Mermaid) participants() []election.ID {
	if len(d.Ring) <= MaxParticipants {
		return d.Ring
	}
	return slices.DeleteFunc(slices.Clone(d.Ring), func(id election.ID) bool { return !slices.Contains(d.shown, id) })
}

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
	// Lost is whether the message wasn't received. Office is whether it belongs to the office, and not to the election.
	Lost   bool `json:"lost,omitempty"`
	Office bool `json:"office,omitempty"`
}

// noteLabels are short forms of the notes. The name of the event isn't one: next to a member,
// crashed would mean that this member crashed.
var noteLabels = map[election.EventKind]string{
	election.Started: "starts", election.Elected: "wins", election.MarkedCrashed: "notes crash", election.Skipped: "skips",
	election.TenureStarted: "holds office", election.TenureLost: "loses office", election.StopRequested: "stops",
	election.OfficeResigned: "resigns",
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
