package chaos

import "time"

// Agent is the agent in the pod with this name and UID.
type Agent struct{ Pod, UID string }

// Record is what was observed from the fault until the group had settled, in the order of observation.
type Record struct {
	// Before is the coordinator before the fault, and Term its term.
	Before Agent
	Term   uint64
	// Fault is the time just before the fault, and Since the time just after the last change that a fault, or its end,
	// caused.
	Fault, Since time.Time
	// Victims are the UIDs of the pods that the fault affects.
	Victims map[string]bool
	// Ousted: no victim can be the next coordinator. One may still win an election, for example before it is killed or
	// isolated, or on its side of a partition. That isn't a failover.
	Ousted bool
	// Claims say who leads, if this isn't a group. ByObjects: objects say so, and not the processes themselves.
	Claims    []Claim
	ByClaims  bool
	ByObjects bool
	// Answers are the responses of coordinators to queries.
	Answers  []Answer
	Changes  []Change
	Statuses []Status
	Routes   []Route
	// Addresses are the IP addresses of pods, by name.
	Addresses map[string][]string
	// HasService: the group has a Service.
	HasService bool
	// Agents are the agents that were observed at the time of the fault.
	Agents []Agent
}

// Answer is the response of an agent that was leading, at some time between Sent and Received.
type Answer struct {
	From           Agent
	Sent, Received time.Time
	Term, Token    uint64
}

// Change is a change that an agent reported on its stream.
type Change struct {
	From Agent
	At   time.Time
	// Coordinator is empty if the agent knows none.
	Coordinator string
	Leading     bool
	Term        uint64
	// Gone: the agent can't be observed any more. Then the other fields are zero.
	Gone bool
}

// Status is a status of the group, as a watch delivered it.
type Status struct {
	At          time.Time
	Coordinator string
	Term        uint64
}

// Route is the set of addresses to which the Service routes, as a watch delivered it.
type Route struct {
	At        time.Time
	Addresses []string
}
