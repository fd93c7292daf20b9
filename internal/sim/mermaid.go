package sim

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

// Mermaid draws a scenario as a sequence diagram in Mermaid's language. An arrow is
// drawn at the time its message is sent. Dotted arrows are messages of the office,
// which aren't counted. Arrows with a cross are lost messages.
type Mermaid struct {
	scenario *Scenario
	shown    []election.ID // participants, in the order of their appearance
	lines    []string
	arrows   int
	// omitted is the number of messages without an arrow.
	omitted int
	// noteOwner is the process whose note is the last line, or None.
	noteOwner election.ID
}

// NewMermaid returns an empty diagram of a scenario.
func NewMermaid(s *Scenario) *Mermaid { return &Mermaid{scenario: s} }

// Watch draws one step.
func (d *Mermaid) Watch(step Step) {
	if step.Input.Kind == election.Recover {
		d.addNote(step.Process, fmt.Sprintf("P%d recovers", step.Process))
	}
	for _, e := range step.Output.Events {
		if text := noteText(step.Process, e); text != "" && d.shows(e) {
			d.addNote(step.Process, text)
		}
	}
	for i := range step.Output.Send {
		d.addArrow(&step.Output.Send[i])
	}
}

// noteText returns the note for an event, or "" if the arrows show it already.
func noteText(id election.ID, e election.Event) string {
	switch e.Kind {
	case election.Started:
		if e.Peer == election.None || e.Peer == id {
			return fmt.Sprintf("P%d starts (term %d)", id, e.Term)
		}
		return fmt.Sprintf("P%d starts, P%d seems dead (term %d)", id, e.Peer, e.Term)
	case election.Elected:
		return fmt.Sprintf("P%d is coordinator (term %d)", id, e.Term)
	case election.MarkedCrashed:
		return fmt.Sprintf("P%d marks P%d crashed", id, e.Peer)
	case election.Skipped:
		return fmt.Sprintf("P%d skips P%d", id, e.Peer)
	case election.TenureStarted:
		return fmt.Sprintf("P%d holds the office (term %d)", id, e.Term)
	case election.TenureLost:
		return fmt.Sprintf("P%d loses the office", id)
	case election.StopRequested:
		return fmt.Sprintf("P%d stops its application", id)
	case election.OfficeResigned:
		return fmt.Sprintf("P%d resigns", id)
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
	lost := d.scenario.Unreachable(m.To)
	switch {
	case lost && m.Kind.Counts():
		line = "-x"
	case lost:
		line = "--x"
	case !m.Kind.Counts():
		line = "-->>"
	}
	d.lines = append(d.lines, fmt.Sprintf("P%d%sP%d: %s%s term %d", m.From, line, m.To, m.Kind, messageContent(m), m.Term))
	d.arrows++
	d.noteOwner = election.None
}

// messageContent returns the content of a message that the arrow doesn't show.
func messageContent(m *election.Message) string {
	switch m.Kind {
	case election.ElectMe, election.NewCoordinator, election.Elect, election.Inquiry, election.Reply:
		return fmt.Sprintf("(%d)", m.Subject)
	case election.Election, election.Coordinator:
		if len(m.List) > 0 {
			return fmt.Sprintf(" %d", m.List)
		}
		if m.Origin != election.None {
			return fmt.Sprintf("(%d)", m.Subject)
		}
	default:
	}
	return ""
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
	fmt.Fprintf(&b, "    title %s\n", d.scenario.Describe())
	participants := d.participants()
	for _, id := range participants {
		mark := ""
		if slices.Contains(d.scenario.Crashed, id) {
			mark = " (down)"
		}
		fmt.Fprintf(&b, "    participant P%d as P%d%s\n", id, id, mark)
	}
	for _, line := range d.lines {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	if d.omitted > 0 {
		fmt.Fprintf(&b, "    Note over P%d,P%d: %d more messages and %d processes are omitted\n",
			participants[0], participants[len(participants)-1], d.omitted, d.scenario.Processes-len(participants))
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// participants returns the participants in the order of the ring: all processes, if
// there is room.
func (d *Mermaid) participants() []election.ID {
	ring := d.scenario.Ring
	if len(ring) == 0 {
		ring = ascendingIDs(d.scenario.Processes)
	}
	if len(ring) <= MaxParticipants {
		return ring
	}
	shown := make([]bool, d.scenario.Processes+1)
	for _, id := range d.shown {
		shown[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ring), func(id election.ID) bool { return !shown[id] })
}

func ascendingIDs(n int) []election.ID {
	ids := make([]election.ID, n)
	for i := range ids {
		ids[i] = election.ID(i + 1)
	}
	return ids
}
