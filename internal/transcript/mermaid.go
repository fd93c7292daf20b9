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

// Mermaid draws an election as a sequence diagram in Mermaid's language. An arrow is
// drawn at the time its message is sent. Dotted arrows are messages of the office,
// which aren't counted. Arrows with a cross are lost messages.
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

// shows reports whether an event is part of the diagram. An event about a process
// for which there is no room isn't.
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

// addParticipant adds a process, if there is room. It reports whether the process
// is a participant.
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

// participants returns the participants in the order of the ring: all processes, if
// there is room.
func (d *Mermaid) participants() []election.ID {
	if len(d.Ring) <= MaxParticipants {
		return d.Ring
	}
	return slices.DeleteFunc(slices.Clone(d.Ring), func(id election.ID) bool { return !slices.Contains(d.shown, id) })
}
