// Package config has the settings of an agent. A file of a user and a document of an operator contain groups in the
// same form, control.Group, and this package checks both in the same way. It accepts a source as a whole or not at all,
// and reports every error with its field and with what would be right.
//
//	a file:     YAML --sigs.k8s.io/yaml--> JSON --strict--> File{Config, []control.Group} --checker--> Config{[]Group}
//	a document:                            JSON ----------> control.Document ---------------checker--> Group
//
// Group has what the election needs: times in place of milliseconds, and no missing values.
package config

import (
	"cmp"
	"time"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Config has the settings of an agent. Defaults are filled in.
type Config struct {
	// Self is the name under which the agent is a member of its groups.
	Self string `json:"self"`
	// Domain separates agents that have the same CA and the same names: a Kubernetes namespace, for example.
	Domain string `json:"domain,omitempty"`
	// API is the address of the local HTTP API, or unix:// with the path of a socket.
	API string `json:"api,omitempty"`
	// APIUIDs are the users who may use a Unix socket, besides that of the agent.
	APIUIDs []uint32 `json:"apiUIDs,omitempty"`
	// ExposeAPI permits an API address that isn't a loopback address.
	ExposeAPI bool `json:"exposeAPI,omitempty"`
	// Listen is the address on which the agent accepts connections of peers.
	Listen string `json:"listen"`
	// State is the directory of the state that must survive the process.
	State  string  `json:"state,omitempty"`
	TLS    TLS     `json:"tls"`
	Groups []Group `json:"-"`

	file string // for error messages
}

// TLS has the files of the agent's certificate, or permits plain TCP.
type TLS struct {
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	CAFile   string `json:"caFile,omitempty"`
	// Insecure selects plain TCP, which is possible on loopback addresses only.
	Insecure bool `json:"insecure,omitempty"`
}

// Group has the settings of one group that the agent takes part in.
type Group struct {
	// Provenance identifies the operator's document. It is zero for a group in a file.
	Provenance

	Name       string
	Algorithm  string
	Safety     Safety
	Preemption Preemption
	Timing     Timing
	// Session makes the process eligible only while an application holds a session
	// open. Without it, the process is also eligible before the first session opens.
	Session bool
	Probe   *Probe
	Service *Service // nil if the agent carries no connections
	List    memberlist.List
}

// LeaseSuitsTiming reports whether a holder has time to renew its grants before they expire.
func (g *Group) LeaseSuitsTiming() bool {
	return g.Safety.Mode == office.Available || g.Safety.Usual() > 2*g.Timing.Heartbeat
}

// Provenance identifies the operator's document that a group comes from.
type Provenance struct {
	// UID distinguishes the group from an earlier one of the same name.
	UID string
	// Generation is the generation of the group's spec. Revision increases with every change of the document.
	Generation, Revision int64
}

// Safety has the conditions for holding the office.
type Safety struct {
	Mode office.Mode
	// Lease is the longest one, for which this process may grant. UsualLease is what the coordinator requests while no
	// renewal is late; if it is 0, leases don't grow.
	Lease, UsualLease time.Duration
}

// Usual returns the lease while no renewal is late.
func (s *Safety) Usual() time.Duration { return cmp.Or(s.UsualLease, s.Lease) }

// LimitLease makes a lease the longest one.
func (s *Safety) LimitLease(longest time.Duration) {
	s.Lease = min(s.Lease, longest)
	s.UsualLease = min(s.UsualLease, s.Lease)
}

// Preemption determines when a process with a higher priority takes over from a healthy coordinator.
type Preemption struct {
	Policy office.Policy
	Stable time.Duration
}

// Timing has the timeouts and intervals of a group; see office.Config.
type Timing struct {
	Heartbeat, SuspicionTimeout, Stagger time.Duration
	// ReplyTimeout is T, the time within which a peer answers. If Measured is true,
	// the agent adds the measured round-trip time to it.
	ReplyTimeout time.Duration
	Measured     bool
	// DrainTimeout is the time that the application may take to stop.
	DrainTimeout time.Duration
}

// Probe is an HTTP health check of the application.
type Probe struct {
	URL      string
	Period   time.Duration
	Timeout  time.Duration
	Failures int
}

// Service has the settings for connections that agents carry: see package proxy.
type Service struct {
	Ports []control.ServicePort
	// Wait is how long new connections wait at most, and others remain while their coordinator is unknown.
	Wait time.Duration
	Keep bool // Connections to a former coordinator remain.
	// ProxyProtocol makes connections begin with the client's address, by version 2 of that protocol.
	ProxyProtocol bool
}
