package transcript

import (
	"fmt"
	"io"
	"strings"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// causeTexts describe the causes, with %s for the former coordinator.
var causeTexts = map[control.EndCause]string{
	control.EndCrash: "%s crashed", control.EndSilence: "%s fell silent", control.EndLapse: "%s lost its lease",
	control.EndHandOver: "%s handed over", control.EndStepDown: "%s was requested to step down",
	control.EndMembership: "%s left the group",
	control.EndPreempted:  "%s handed over to a higher member", control.EndExcluded: "the operator excluded %s",
	control.EndStopped:       "the agent of %s was stopped",
	control.EndSessionClosed: "the application of %s closed its session",
	control.EndNotRenewed:    "the session of %s was not renewed in time",
	control.EndProbeFailed:   "the application of %s failed its probe",
}

// Describe describes an election in one line.
func (e *Election) Describe() string {
	text := fmt.Sprintf("%s was elected in term %d", e.Coordinator, e.Term)
	if e.Coordinator == "" {
		text = "No coordinator is elected yet"
	}
	if e.Former != "" {
		text += " after " + e.describeCause()
	}
	return text
}

func (e *Election) describeCause() string { return fmt.Sprintf(causeTexts[e.Cause], e.Former) }

// WriteText writes the milestones, the number of messages, what is missing, and each step.
func (e *Election) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s (%s, %s), at %s.\n\n", e.Describe(), e.Algorithm, e.Safety,
		e.Began.UTC().Format("2006-01-02 15:04:05.000 MST"))
	for _, m := range e.Milestones {
		fmt.Fprintf(w, "%10.3f ms  %+10.3f ms  %s\n", Millis(m.Micros), Millis(m.TookMicros), m.Text)
	}
	fmt.Fprintf(w, "\nMessages: %s.\n", e.CountMessages())
	if text := e.DescribeWaits(); text != "" {
		fmt.Fprintf(w, "Clients: %s.\n", text)
	}
	for _, m := range e.Missing {
		fmt.Fprintf(w, "Missing: %s (%s).\n", m.Agent, m.Reason)
	}
	fmt.Fprintln(w)
	n := e.number()
	t := Text{To: w, Names: n.name, Width: n.width(), Note: n.note}
	n.replay(t.Watch)
}

// WriteMermaid writes a sequence diagram in Mermaid's language.
func (e *Election) WriteMermaid(w io.Writer) error {
	n := e.number()
	d := Mermaid{
		Title: e.Group + ": " + e.Describe(), Names: n.name, Ring: n.ring(),
		Down: n.down, Lost: n.lost,
	}
	n.replay(d.Watch)
	_, err := d.WriteTo(w)
	return err
}

// CountMessages lists the messages of the algorithm, and those of the office.
func (e *Election) CountMessages() string {
	var counted, office []string
	total := 0
	for k := range election.Kind(255) {
		n := e.Messages[k.String()]
		if n == 0 || k == election.NoKind {
			continue
		}
		if text := fmt.Sprintf("%d %s", n, k); k.Counts() {
			counted, total = append(counted, text), total+n
		} else {
			office = append(office, text)
		}
	}
	text := fmt.Sprintf("%d of the election", total)
	if total > 0 {
		text += ": " + strings.Join(counted, ", ")
	}
	if len(office) > 0 {
		text += "; of the office: " + strings.Join(office, ", ")
	}
	return text
}

// DescribeWaits describes how connections of clients waited, "" if no agent remembers that.
func (e *Election) DescribeWaits() string {
	w := e.Waited
	if w == nil {
		return ""
	}
	text := "no connection waited"
	if w.Connections > 0 {
		text = fmt.Sprintf("%d connections waited, the longest for %.3f ms", w.Connections, Millis(w.LongestMicros))
	}
	if w.InVain > 0 {
		text += fmt.Sprintf(", and %d in vain", w.InVain)
	}
	return text
}

type numbered struct {
	*Election

	names []string // by ID
	ids   map[string]election.ID
	// sent and received are when a message was sent and received.
	sent, received map[letter]int64
}

func (e *Election) number() *numbered {
	n := &numbered{Election: e, ids: map[string]election.ID{}, sent: map[letter]int64{}, received: map[letter]int64{}}
	n.id("")
	for _, name := range e.Members {
		n.id(name)
	}
	for i := range e.Steps {
		if m := received(&e.Steps[i].Step); m != nil {
			n.received[letterOf(m)] = e.Steps[i].Micros
		}
		for k := range e.Steps[i].Sent {
			n.sent[letterOf(&e.Steps[i].Sent[k])] = e.Steps[i].Micros
		}
	}
	return n
}

func (n *numbered) id(name string) election.ID {
	id, known := n.ids[name]
	if !known {
		id = election.ID(len(n.names))
		n.ids[name], n.names = id, append(n.names, name)
	}
	return id
}

func (n *numbered) name(id election.ID) string {
	if id == election.None {
		return "none"
	}
	return n.names[id]
}

func (n *numbered) width() int {
	width := 0
	for _, name := range n.names {
		width = max(width, len(name))
	}
	return width
}

func (n *numbered) ring() []election.ID {
	var ring []election.ID
	for _, name := range n.Members {
		ring = append(ring, n.id(name))
	}
	return ring
}

// replay passes the steps on as those of a simulation.
func (n *numbered) replay(watch func(Step)) {
	for i := range n.Steps {
		s := &n.Steps[i]
		step := Step{
			At: election.Tick(s.Micros) * Microsecond, Process: n.id(s.Agent),
			Input: election.Input{Kind: inputKinds[s.Input], Peer: n.id(s.Peer)}, Output: &election.Output{},
		}
		if s.Message != nil {
			step.Input.Message = n.message(s.Message)
		}
		for _, e := range s.Events {
			step.Output.Events = append(step.Output.Events, election.Event{
				Kind: eventKinds[e.Kind], Peer: n.id(e.Peer), Term: election.Term(e.Term), Token: election.Token(e.Token),
			})
		}
		for k := range s.Sent {
			step.Output.Send = append(step.Output.Send, n.message(&s.Sent[k]))
		}
		watch(step)
	}
}

func (n *numbered) message(m *journal.Message) election.Message {
	converted := election.Message{
		Kind: messageKinds[m.Kind], From: n.id(m.From), To: n.id(m.To), Term: election.Term(m.Term), Lamport: m.Lamport,
		Subject: n.id(m.Subject), Origin: n.id(m.Origin), Hops: m.Hops,
		Hold: election.Hold{Life: m.Life, Held: m.Held, Ready: m.Ready, Ineligible: m.Ineligible},
	}
	for _, name := range m.List {
		converted.List = append(converted.List, n.id(name))
	}
	return converted
}

// note returns how long a received message took, or whether one that was sent is lost.
func (n *numbered) note(s Step, m *election.Message) string {
	l := n.letter(m)
	if m.To == s.Process {
		if sent, known := n.sent[l]; known && m.From != m.To {
			return fmt.Sprintf("after %.3f ms", Millis(n.received[l]-sent))
		}
		return ""
	}
	if n.lost(m) {
		return "not received"
	}
	return ""
}

// noteArrival returns when a message that is sent was received, or that it wasn't.
func (n *numbered) noteArrival(m *election.Message) string {
	l := n.letter(m)
	if arrived, known := n.received[l]; known && m.From != m.To {
		return fmt.Sprintf("received after %.3f ms", Millis(arrived-n.sent[l]))
	}
	if n.lost(m) {
		return "not received"
	}
	return ""
}

// down reports whether the election began with the crash of this process.
func (n *numbered) down(id election.ID) bool {
	return n.name(id) == n.Former && n.Cause == control.EndCrash
}

// lost reports whether a message was certainly not received.
func (n *numbered) lost(m *election.Message) bool {
	l := n.letter(m)
	if _, arrived := n.received[l]; arrived {
		return false
	}
	return n.complete[l.to] || l.to == n.Former && n.Cause == control.EndCrash
}

func (n *numbered) letter(m *election.Message) letter {
	return letter{n.name(m.From), n.name(m.To), m.Kind.String(), m.Hold.Life, uint64(m.Term), m.Lamport}
}

// Microsecond is one tick of the time of a step.
const Microsecond election.Tick = 1

// Millis converts ticks, or microseconds, to milliseconds.
func Millis[T ~int64](t T) float64 { return float64(t) / float64(1000*Microsecond) }

// Step is the input and the output of one step of a process. In a schedule, it may be a fault instead.
type Step struct {
	// Fault describes a fault, or is "". A fault has no input and no output.
	Fault   string
	At      election.Tick
	Process election.ID
	Input   election.Input
	// Output is valid only during the call.
	Output *election.Output
}

// Text writes one line for each input, event and message: the time in milliseconds, the process, and a description.
type Text struct {
	To    io.Writer
	Names election.Names
	// Width is the space for a name.
	Width int
	// Note, if set, returns what else there is to say about a message that is received or sent in this step, or "".
	Note func(Step, *election.Message) string
}

// Watch writes one step.
func (t *Text) Watch(step Step) {
	if step.Fault != "" {
		t.line(step, "FAULT", step.Fault)
		return
	}
	if step.Input.Kind == election.TimePassed && len(step.Output.Send)+len(step.Output.Events) == 0 {
		return // a timer that fired early
	}
	got := step.Input.DescribeWith(t.Names)
	if step.Input.Kind == election.Receive {
		got += t.note(step, &step.Input.Message)
	}
	t.line(step, "gets", got)
	for _, e := range step.Output.Events {
		t.line(step, "finds", e.DescribeWith(t.Names))
	}
	for i := range step.Output.Send {
		m := &step.Output.Send[i]
		t.line(step, "sends", m.DescribeWith(t.Names)+t.note(step, m))
	}
}

func (t *Text) line(step Step, verb, text string) {
	fmt.Fprintf(t.To, "%10.3f ms  %*s  %-5s  %s\n", Millis(step.At), max(4, t.Width), t.Names(step.Process), verb, text)
}

func (t *Text) note(step Step, m *election.Message) string {
	if t.Note == nil {
		return ""
	}
	if text := t.Note(step, m); text != "" {
		return " (" + text + ")"
	}
	return ""
}
