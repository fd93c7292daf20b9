package main

import "github.com/conclave-dev/conclave/hack/internal/benchmark"

// Scale is one manager with many groups. Its agents are stand-ins: who leads is
// decreed, and from then on all is real.
type Scale struct {
	Groups         int  `json:"groups"`
	Members        int  `json:"members"`
	LeaderElection bool `json:"leaderElection"`
	Bystanders     int  `json:"bystanders"`

	// Empty is the manager's memory with no groups; Resident when all agents are
	// connected and all groups have a status, End after the elections, and Peak
	// the most that it ever was. All in MiB.
	Empty    float64 `json:"emptyMiB"`
	Resident float64 `json:"residentMiB"`
	End      float64 `json:"endMiB"`
	Peak     float64 `json:"peakMiB"`
	// StreamMemory is what each stream costs of that, with its share of pods and groups.
	StreamMemory float64 `json:"streamKiB"`
	// StreamBytes went over each connection until it was current.
	StreamBytes float64 `json:"streamBytes"`

	// Start is from the start of the process until the last group's status is
	// complete, with no status before; StartCPU what the process used for it.
	Start    float64 `json:"startSeconds"`
	StartCPU float64 `json:"startCPUSeconds"`

	Elections *Elections `json:"elections,omitempty"`
	Idle      *Idle      `json:"idle,omitempty"`
	Restart   *Restart   `json:"restart,omitempty"`

	Goals    []benchmark.Goal `json:"goals"`
	Failures []string         `json:"failures,omitempty"`
}

// Elections are those of random groups, at a steady rate.
type Elections struct {
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"`
	// Lag is from right before the first agent of a group reports its new
	// coordinator until a watch of the API server shows it.
	Lag *benchmark.Series `json:"lag,omitempty"`
	// Skipped are elections that there would have been if the last one of the same
	// group had been seen.
	Skipped int `json:"skipped"`
	// Requests is how many of each kind an election took: those of the manager,
	// and under All those of everybody, by verb and resource.
	Requests Requests `json:"requestsPerElection"`
	All      Requests `json:"allRequestsPerElection"`
	// Bytes went over the streams for an election.
	Bytes float64 `json:"streamBytesPerElection"`
	// CPU is how much of a core each program used, in percent. The stand-ins are
	// this program, which also watches.
	CPU map[string]float64 `json:"cpuPercent"`
	// Cost is the same for each election, in milliseconds of processor time: other
	// than the lag, it hardly depends on what else the machine does.
	Cost map[string]float64 `json:"cpuMillisPerElection"`
}

// Idle is how often the manager asks the API server while nothing happens.
type Idle struct {
	Seconds  float64  `json:"seconds"`
	Requests Requests `json:"requests"`
	// CPU is how much of a core the manager uses meanwhile, in percent, and Bytes
	// what goes over each stream in a minute.
	CPU   float64 `json:"cpuPercent"`
	Bytes float64 `json:"streamBytesPerMinute"`
}

// Restart is a manager that ends and one that follows it.
type Restart struct {
	// Heard is from the start of the process until all agents are heard again.
	Heard    float64  `json:"heardSeconds"`
	Requests Requests `json:"requests"`
	// Changes is how often a group changed meanwhile: nothing has happened.
	Changes int `json:"changes"`
}

// judge compares with the goals, which are for a thousand groups of five, and
// for fewer all the more.
func (s *Scale) judge() {
	s.Goals = append(s.Goals, benchmark.AtMost("peak memory of the manager", "MiB", s.Peak, 400))
	if s.Elections.Lag != nil {
		s.Goals = append(s.Goals, benchmark.AtMost("status lag, p99", "ms", s.Elections.Lag.P99, 250))
	}
	s.Goals = append(s.Goals,
		benchmark.AtMost("writes while idle, but for the Lease", "requests", s.Idle.Requests.of(writes), 0),
		benchmark.AtMost("reads while idle, but for the Lease", "requests", s.Idle.Requests.of(reads), 0),
		benchmark.AtMost("groups that a restart of the manager changes", "changes", float64(s.Restart.Changes), 0))
}
