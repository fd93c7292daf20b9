package sim

import (
	"slices"
	"strings"
)

// Fault is a kind of thing that goes wrong.
type Fault uint16

// The faults, each of which can be asked for by its name.
const (
	// Loss: messages are lost.
	Loss Fault = 1 << iota
	// Delay: messages take much longer than Ttrans.
	Delay
	// Reorder: messages of one link overtake each other.
	Reorder
	// Duplicate: messages arrive twice.
	Duplicate
	// Crash: processes end at any step, with a reset of their connections or
	// without, and most come back without their memory; sometimes all at once.
	Crash
	// AppDead: the application is dead, the agent alive.
	AppDead
	// Pause: a process stands still, and goes on later believing what it did.
	Pause
	// Partition: links are cut, one way or both, and heal.
	Partition
	// Clocks: the clocks' rates differ, and so do the wall clocks.
	Clocks
	// Members: the member list grows, shrinks, is renumbered or replaced, and
	// processes adopt it at different times.
	Members
	// StepDown: an operator asks the coordinator to give way.
	StepDown
	// Leases: processes are restarted one by one with another lease.
	Leases

	allFaults = 1<<iota - 1
)

// common are the faults that are drawn alike, those before Leases.
const commonFaults = 11

var faultNames = []string{
	"loss", "delay", "reorder", "duplicate", "crash", "appdead", "pause", "partition", "clocks", "members", "stepdown",
	"leases",
}

// FaultNames are the names of all faults.
func FaultNames() []string { return slices.Clone(faultNames) }

// ParseFaults reads the names of faults; "all" is all of them.
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
