package control

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

// Document configures a group, in JSON. An agent uses the document with the highest
// revision that it has ever seen of a group.
//
// The status of the group has the SHA-256 of these bytes. If an operator encodes the same group in another way, all
// groups get a new revision when it takes over. So new fields are omitted if they are empty.
type Document struct {
	// UID distinguishes this group from an earlier one of the same name.
	UID string `json:"uid"`
	// Generation is that of the spec that the settings come from.
	Generation int64 `json:"generation"`
	// Revision increases with each change of the document, and from one group to the next one of the same name.
	Revision int64 `json:"revision"`
	// Group has the UIDs of pods. The location of a member without an address isn't known yet.
	Group Group `json:"group"`
}

// Group is a group in a document or in an agent's configuration file. In a file, most fields may be missing: the agent
// has defaults. Members need addresses there.
type Group struct {
	Name        string      `json:"name"`
	Algorithm   string      `json:"algorithm"`
	Safety      Safety      `json:"safety"`
	Preemption  Preemption  `json:"preemption"`
	Timing      Timing      `json:"timing"`
	Application Application `json:"application"`
	Service     *Service    `json:"service,omitempty"`
	memberlist.List
}

// Safety is the group's safety.
type Safety struct {
	Mode string `json:"mode"`
	// LeaseMillis is the lease while no renewal is late, and LongestLeaseMillis the longest one, for which members may
	// have granted: see LongestLease. It is that of the list.
	LeaseMillis        int32 `json:"leaseMillis"`
	LongestLeaseMillis int32 `json:"longestLeaseMillis,omitempty"`
}

// DefaultLease is the lease of a group that doesn't set one. The API has the same default, in api/v1/settings.go.
const DefaultLease = 500 * time.Millisecond

// LongestLease returns up to which length leases grow while renewals are late, if they usually have this one. A process
// that has lost its memory of grants waits that long before it votes.
func LongestLease(usual time.Duration) time.Duration { return max(usual, 2*time.Second) }

// LongestLeaseMillis is LongestLease in milliseconds, as in the API.
func LongestLeaseMillis(usual int32) int32 {
	return int32(LongestLease(time.Duration(usual)*time.Millisecond) / time.Millisecond) //nolint:gosec // small
}

// Preemption is the group's preemption.
type Preemption struct {
	Policy       string `json:"policy"`
	StableMillis *int32 `json:"stableMillis,omitempty"`
}

// LongTenure returns how long a tenure must last so that it doesn't count against a member: ten
// stable periods, but at least a minute. So a member that fails again and again leads once in a
// minute at most. The longest penalty is eight times as long.
func LongTenure(stable time.Duration) time.Duration {
	return min(max(10*stable, time.Minute), 2*time.Minute)
}

// Timing has the group's timeouts. The agent derives those that are nil.
type Timing struct {
	HeartbeatMillis        int32  `json:"heartbeatMillis"`
	SuspicionTimeoutMillis *int32 `json:"suspicionTimeoutMillis,omitempty"`
	StaggerMillis          *int32 `json:"staggerMillis,omitempty"`
	ReplyMillis            *int32 `json:"replyMillis,omitempty"`
	DrainMillis            *int32 `json:"drainMillis,omitempty"`
}

// Application configures the application's part in elections.
type Application struct {
	Session string `json:"session"`
	// Probe is in files only. In a pod, an annotation names the URL.
	Probe *Probe `json:"probe,omitempty"`
}

// Service says where agents listen for clients, and how they carry their connections to the coordinator's application.
type Service struct {
	Ports []ServicePort `json:"ports"`
	// WaitMillis is how long connections wait while there is no coordinator.
	WaitMillis *int32 `json:"waitMillis,omitempty"`
	// Connections says what becomes of those to a former coordinator: Close or Keep.
	Connections string `json:"connections,omitempty"`
	// ProxyProtocol is V2 if the application expects its header.
	ProxyProtocol string `json:"proxyProtocol,omitempty"`
}

// ServicePort is a port of an agent for clients. Port is that of the application.
type ServicePort struct {
	Listen string `json:"listen"`
	Port   uint16 `json:"port"`
}

// Probe is an HTTP health check of the application.
type Probe struct {
	URL           string `json:"url"`
	PeriodMillis  int32  `json:"periodMillis,omitempty"`
	TimeoutMillis int32  `json:"timeoutMillis,omitempty"`
	Failures      int32  `json:"failures,omitempty"`
}
