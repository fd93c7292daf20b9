// Package diagram writes the steps of an election as a transcript, and draws them as sequence
// diagrams. The steps are those of a simulation, or those that agents recorded.
package diagram

import "github.com/conclave-dev/conclave/internal/election"

// Microsecond is one tick of the time of a step.
const Microsecond election.Tick = 1

// Millis converts ticks to milliseconds.
func Millis(t election.Tick) float64 { return float64(t) / float64(1000*Microsecond) }

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
