package sim

import (
	"slices"
	"strings"
)

// Fault is a set of kinds of faults.
type Fault uint16

// The kinds of faults. ParseFaults has their names.
const (
	// Loss: messages are lost.
	Loss Fault = 1 << iota
	// Delay: messages take much longer than the maximum transmission time Ttrans.
	Delay
	// Reorder: messages of a link overtake each other.
	Reorder
	// Duplicate: messages are delivered twice.
	Duplicate
	// Crash: processes end at any step, with or without a reset of their
	// connections. Most restart, without their memory. Sometimes all processes crash
	// at once.
	Crash
	// AppDead: the application ends and restarts while its agent continues to run.
	AppDead
	// Pause: a process stops and later resumes with its memory.
	Pause
	// Partition: links are cut in one direction or both, and may heal.
	Partition
	// Clocks: the clocks run at different rates, and the wall clocks differ.
	Clocks
	// Members: the member list grows, shrinks, is replaced in part, or gets other
	// priorities. Processes adopt it at different times.
	Members
	// StepDown: a process, usually the coordinator, is asked to step down.
	StepDown
	// Leases: processes restart one by one with another lease.
	Leases

	allFaults = 1<<iota - 1
)

// commonFaults is the number of faults that are drawn with equal probability:
// those before Leases.
const commonFaults = 11

var faultNames = []string{
	"loss", "delay", "reorder", "duplicate", "crash", "appdead", "pause", "partition", "clocks", "members", "stepdown",
	"leases",
}

// FaultNames returns the names of all faults.
func FaultNames() []string { return slices.Clone(faultNames) }

// ParseFaults returns the faults with the given names. The name "all" stands for
// all of them.
func ParseFaults(names []string) (Fault, error) {
	var faults Fault
	for _, name := range names {
		i := slices.Index(faultNames, name)
		switch {
		case name == "all":
			faults |= allFaults
		case i < 0:
			return 0, inputErrorf("unknown fault %q: choose all, or some of %s", name, strings.Join(faultNames, ", "))
		default:
			faults |= 1 << i
		}
	}
	return faults, nil
}
