package control

import "time"

// TimingInForce is what an agent reports of the timing that is in force in a group.
type TimingInForce struct {
	HeartbeatMillis        int64 `json:"heartbeatMillis"`
	SuspicionTimeoutMillis int64 `json:"suspicionTimeoutMillis"`
	// LeaseMillis is 0 in Available mode, which has no lease.
	LeaseMillis int64 `json:"leaseMillis,omitempty"`
	// LongestSuspicionTimeoutMillis and LongestLeaseMillis are up to which length both grow while renewals are late. Agents that are too
	// old for that report neither.
	LongestSuspicionTimeoutMillis int64 `json:"longestSuspicionTimeoutMillis,omitempty"`
	LongestLeaseMillis            int64 `json:"longestLeaseMillis,omitempty"`
}

// Answers is what an agent reports of the answers of a member to its heartbeats as coordinator,
// in the last five to ten minutes. The times are from when the agent computed the heartbeat
// until it handled the answer, on its own clock.
type Answers struct {
	Count uint64 `json:"count"`
	// P99Micros is a time in which 99 % of the answers arrived, too high by at most a
	// quarter.
	P99Micros     int64 `json:"p99Micros"`
	LongestMicros int64 `json:"longestMicros"`
	// SecondMicros is the longest of the others, and LongestAt when the longest one arrived. Agents that
	// are too old for them report neither.
	SecondMicros int64     `json:"secondMicros,omitempty"`
	LongestAt    time.Time `json:"longestAt,omitzero"`
}
