package sim

import (
	"context"
	"errors"
)

// Sampling are schedules to draw and run. Schedule i has the seed Seed+i, so
// that each can be run again by itself.
type Sampling struct {
	Algorithm string
	Processes int
	// Safety is the mode; empty is Majority.
	Safety string
	// Faults are the names of what may go wrong; none is nothing.
	Faults    []string
	Schedules int
	Seed      uint64
	// Workers run schedules side by side; 0 is one for each processor.
	Workers int
	// Progress, if set, is called now and then, by one goroutine at a time.
	Progress func(done int)
	// Watch, if set, is told of every step; then one worker runs.
	Watch func(Step)
}

// Report is what a sampling found.
type Report struct {
	Schedules int
	// Violated counts the schedules with a violation; Violations are the first
	// few of them.
	Violated   int
	Violations []Violation
	// Distinct estimates how many different traces the schedules had.
	Distinct uint64
	// Steps counts the inputs that Machines took.
	Steps uint64
}

// Violation is a promise that a schedule broke.
type Violation struct {
	Seed      uint64
	Invariant string
	Detail    string
}

// FaultNames are the names of all faults.
func FaultNames() []string {
	return []string{
		"loss", "delay", "reorder", "duplicate", "crash", "appdead", "pause", "partition", "clocks", "members", "stepdown",
	}
}

// Sample runs schedules until all are done, or ctx is.
func Sample(context.Context, Sampling) (Report, error) {
	return Report{}, errors.New("schedules can't be simulated yet")
}
