package transcript

import (
	"fmt"
	"io"

	"github.com/conclave-dev/conclave/internal/election"
)

// Microsecond is one tick of the time of a step.
const Microsecond election.Tick = 1

// Millis converts ticks, or microseconds, to milliseconds.
func Millis[T ~int64](t T) float64 { return float64(t) / float64(1000*Microsecond) }

// Step is the input and the output of one step of a process. In a schedule, it may
// be a fault instead.
type Step struct {
	// Fault describes a fault, or is "". A fault has no input and no output.
	Fault   string
	At      election.Tick
	Process election.ID
	Input   election.Input
	// Output is valid only during the call.
	Output *election.Output
}

// Text writes one line for each input, event and message: the time in
// milliseconds, the process, and a description.
type Text struct {
	To    io.Writer
	Names election.Names
	// Width is the space for a name.
	Width int
	// Note, if set, returns what else there is to say about a message that is received
	// or sent in this step, or "".
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
