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
	// Crash: processes end at any step, with or without a reset of their connections. Most restart, without their memory.
	// Sometimes all processes crash at once.
	Crash
	// AppDead: the application ends and restarts while its agent continues to run.
	AppDead
	// Pause: a process stops and later resumes with its memory.
	Pause
	// Partition: links are cut in one direction or both, and may heal.
	Partition
	// Clocks: the clocks run at different rates.
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
	// Pods: pods are replaced. The new one begins with an older member list.
	Pods
	// Disk: a process can't write a list or a reservation to its disk, or ends while it writes one, and
	// starts again with the stored list rather than with the latest one.
	Disk
	// Deep: twenty and more faults happen at given times, over many leases.
	Deep
	// DiskLost: a process restarts without what it has stored, in the same pod.
	DiskLost
	// Operator: the clock of the operator jumps, its replicas take turns, and each of them learns late which processes
	// are connected.
	Operator

	allFaults = 1<<iota - 1
)

// What "all" doesn't include: a fault that breaks an assumption, faults that don't end, and what is no fault.
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
	// Burst: members are replaced one by one in quick succession. Then the coordinator crashes.
	Burst
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

// commonFaults is the number of faults that are drawn with equal probability: those before Leases.
const commonFaults = 11

var faultNames = []string{
	"loss", "delay", "reorder", "duplicate", "crash", "appdead", "pause", "partition", "clocks", "members", "stepdown",
	"leases", "graph", "slow", "pods", "disk", "deep", "disk-lost", "operator",
}

var optionalFaultNames = []string{
	"gone", "settings", "recovery", "late", "latency", "lossy", "throttle", "failing", "drains", "burst", "mixed",
	"rejoin", "grow", "tail", "redial", "few",
}

// Names of sets of faults: those that end, and all that break no assumption.
const (
	FaultsThatEnd = "all"
	SoakFaults    = "soak"
)

// FaultNames returns the names of all faults, those of FaultsThatEnd first.
func FaultNames() []string { return slices.Concat(faultNames, optionalFaultNames) }

// Names returns the names of the faults. They begin with the name of a set, if the faults include that.
func (f Fault) Names() []string {
	switch {
	case f&soakFaults == soakFaults:
		return append([]string{SoakFaults}, (f &^ soakFaults).names()...)
	case f&allFaults == allFaults:
		return append([]string{FaultsThatEnd}, (f &^ allFaults).names()...)
	}
	return f.names()
}

func (f Fault) names() []string {
	var names []string
	for i, name := range FaultNames() {
		if f>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return names
}

// soakFaults are those that break no assumption.
const soakFaults = (Few<<1 - 1) &^ Gone

// ParseFaults returns the faults with the given names, which may be those of sets.
func ParseFaults(names []string) (Fault, error) {
	var faults Fault
	for _, name := range names {
		i := slices.Index(FaultNames(), name)
		switch {
		case name == FaultsThatEnd:
			faults |= allFaults
		case name == SoakFaults:
			faults |= soakFaults
		case i >= 0:
			faults |= 1 << i
		default:
			return 0, inputErrorf("unknown fault %q: choose all, soak, or some of %s", name, strings.Join(FaultNames(), ", "))
		}
	}
	return faults, nil
}
