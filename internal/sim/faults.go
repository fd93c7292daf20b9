package sim

import (
	"slices"
	"strings"
)

// Fault is a set of kinds of faults.
type Fault uint64

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
	// Graph: some links, in one direction or both, don't work during the whole schedule.
	// They don't heal either: see network.go.
	Graph
	// Slow: a process handles each input only after a delay.
	Slow
	// Jump: the wall clock of a process has another reading after a restart.
	Jump
	// Disk: a process can't write a list to its disk, or ends while it writes one, and
	// starts again with the stored list rather than with the latest one.
	Disk
	// Deep: twenty and more faults happen at given times, over many leases.
	Deep
	// Skew: the wall clocks differ by up to the maximum that agents accept, 300 terms.
	Skew

	allFaults = 1<<iota - 1
)

// What "all" doesn't include: a fault that breaks an assumption, and what was added when seeds of "all" were
// tests already.
const (
	// Gone: a process is reported as ended although it runs.
	Gone Fault = (allFaults + 1) << iota
	// Settings: processes get other leases, heartbeats and suspicion timeouts while they
	// run, one by one. This is no fault either.
	Settings
	// Recovery: a process that restarts runs the recovery procedure of its election, as agents
	// do. This is no fault either.
	Recovery
	// Late: one process receives each member list late, although its links work.
	Late
	// Correct: wall clocks are corrected while their processes run.
	Correct
	// Latency: all messages take the same additional time during the whole schedule. It doesn't
	// end with the other faults: see lasting.go.
	Latency
	// Lossy: a few messages are lost, also after the other faults have ended.
	Lossy
	// Throttle: a process is paused again and again, also after the other faults have ended.
	Throttle
	// Failing: the application of a process fails each time soon after it starts to lead.
	Failing
	// Drains: applications take up to 20 leases to stop, and stable periods are as long.
	Drains
	// Operator: the clock of the operator is ahead of some or all members.
	Operator
	// Burst: members are replaced one by one in quick succession. Then the coordinator crashes.
	Burst
	// Pods: a replaced pod begins with an older member list.
	Pods
	// Mixed: processes have different policies and, except in Available, modes. Both change while they run.
	Mixed
	// Rejoin: a process joins the group again, without its memory, in the same incarnation.
	Rejoin
	// Grow: leases are usually shorter than the longest one, and grow while renewals are late. This breaks no assumption,
	// but it is no fault either.
	Grow
	// Tail: the time that a message takes has a heavy tail, during the whole schedule.
	Tail
	// Redial: after a partition, each link works again at a time of its own, as when agents dial again.
	Redial
	// Few: half of the schedules have only a few of the other faults, see possibleFaults.
	Few
)

// baseFaults are those whose draws determine the schedule of a seed: see moreFaults.
const baseFaults = Leases<<1 - 1

// commonFaults is the number of faults that are drawn with equal probability:
// those before Leases.
const commonFaults = 11

var faultNames = []string{
	"loss", "delay", "reorder", "duplicate", "crash", "appdead", "pause", "partition", "clocks", "members", "stepdown",
	"leases", "graph", "slow", "jump", "disk", "deep", "skew",
}

var optionalFaultNames = []string{
	"gone", "settings", "recovery", "late", "correct", "latency", "lossy", "throttle", "failing", "drains", "operator",
	"burst", "pods", "mixed", "rejoin", "grow", "tail", "redial", "few",
}

// FaultNames returns the names of the faults that "all" stands for.
func FaultNames() []string { return slices.Clone(faultNames) }

// OptionalFaultNames returns the names of the other faults.
func OptionalFaultNames() []string { return slices.Clone(optionalFaultNames) }

func allFaultNames() []string { return slices.Concat(faultNames, optionalFaultNames) }

func (f Fault) names() []string {
	var names []string
	for i, name := range allFaultNames() {
		if f>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return names
}

// ParseFaults returns the faults with the given names. The name "all" stands for
// those of FaultNames.
func ParseFaults(names []string) (Fault, error) {
	var faults Fault
	for _, name := range names {
		common, optional := slices.Index(faultNames, name), slices.Index(optionalFaultNames, name)
		switch {
		case name == "all":
			faults |= allFaults
		case common >= 0:
			faults |= 1 << common
		case optional >= 0:
			faults |= Gone << optional
		default:
			return 0, inputErrorf("unknown fault %q: choose all, or some of %s", name, strings.Join(allFaultNames(), ", "))
		}
	}
	return faults, nil
}
