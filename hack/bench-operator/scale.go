package main

import "github.com/conclave-dev/conclave/hack/internal/benchmark"

// Scale contains the results for one manager with many groups. The agents are fake: the
// benchmark sets the coordinators that they report. Everything else is real.
type Scale struct {
	Groups, Members int

	// The memory of the manager in MiB: Empty without groups, Resident when all agents
	// are connected and all groups have a status, and Peak the maximum, also after a restart.
	Empty, Resident, Peak float64
	// StreamMemory is the memory for each stream in KiB, with its share of pods and
	// groups: Resident minus Empty, divided by the number of agents.
	StreamMemory float64

	// Start is the time in seconds from the start of the process until the status of the
	// last group is complete. Before, no group has a status.
	Start float64

	Elections *Elections
	Idle      *Idle
	Restart   *Restart

	Goals  []benchmark.Goal
	Missed []string
}

// Elections contains the results for elections of random groups at a steady rate.
type Elections struct {
	Count   int
	Seconds float64
	// Lag is the time from just before the first agent of a group reports the new
	// coordinator until a watch shows the status.
	Lag *benchmark.Series
	// Skipped is the number of elections that were omitted because the status of the
	// group didn't show its previous election yet.
	Skipped int
	// Requests are the manager's requests per election by kind.
	Requests Quantities
	// Cost is the CPU time of each program per election in milliseconds. Unlike the lag, it
	// hardly depends on the load of the machine.
	Cost Quantities
}

// Idle contains the manager's requests to the API server while nothing happens.
type Idle struct {
	Seconds  float64
	Requests Quantities
}

// Restart contains the results for a restart of the manager.
type Restart struct {
	// Connected is the time in seconds from the start of the process until all agents are connected.
	Connected float64
	Requests  Quantities
	// Changes is the number of changes of groups. A restart should cause none.
	Changes int
}

// memoryGoal is the goal for the memory of the manager in MiB, for each thousand groups of 5.
const memoryGoal = 150

// judge compares the results with the goals. The goals are for 1,000 groups of 5; smaller runs must reach them too.
func (s *Scale) judge() {
	s.Goals = append(s.Goals,
		benchmark.AtMost("peak memory of the manager", "MiB", s.Peak, memoryGoal*max(1, float64(s.Groups*s.Members)/5000)))
	if s.Elections.Lag != nil {
		s.Goals = append(s.Goals, benchmark.AtMost("status lag, p99", "ms", s.Elections.Lag.P99, 250))
	}
	s.Goals = append(s.Goals,
		benchmark.AtMost("writes while idle, without the Lease", "requests", s.Idle.Requests.withPrefix(writes), 0),
		benchmark.AtMost("reads while idle, without the Lease", "requests", s.Idle.Requests.withPrefix(reads), 0),
		benchmark.AtMost("groups changed by a restart of the manager", "changes", float64(s.Restart.Changes), 0))
}
