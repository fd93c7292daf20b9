// Package config is what a user tells an agent: one YAML file, read as a whole
// or not at all. Every complaint names the line, and what would be right.
package config

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Config is a file that is in order: defaults are filled in, and all that could
// be checked has been.
type Config struct {
	// Self is the name under which the agent is a member of its groups.
	Self string
	// Domain keeps agents apart that have the same certificate authority and
	// the same names: a Kubernetes namespace, for one.
	Domain string
	// API is the address of the local HTTP API.
	API string
	// Listen is the address on which peers are awaited.
	Listen string
	// State is the folder of what must outlive the process.
	State  string
	TLS    TLS
	Groups []Group
	// ExposeAPI is the consent to an API that isn't on a loopback address.
	ExposeAPI bool

	// file and lines are where things stand: lines has "" for the file itself,
	// and one entry for each group.
	file  string
	lines map[string]keyLines
}

// TLS are the files of the agent's certificate, or the consent to do without.
type TLS struct {
	CertFile, KeyFile, CAFile string
	// Insecure: plain TCP, on loopback addresses.
	Insecure bool
}

// Group is one election that the agent takes part in.
type Group struct {
	// Provenance is that of the operator's document, zero for a group in a file.
	Provenance

	Name       string
	Algorithm  string
	Safety     Safety
	Preemption Preemption
	Timing     Timing
	// Session says that the process stands only while an application holds a
	// session open. Otherwise it does so until the first one breaks.
	Session bool
	Probe   *Probe
	List    List
}

// Provenance is where a group comes from that an operator has given out.
type Provenance struct {
	// UID tells the group from an earlier one of the same name.
	UID string
	// Generation is that of the settings, and Revision that of the whole.
	Generation, Revision int64
}

// Safety says what it takes to be coordinator.
type Safety struct {
	Mode  office.Mode
	Lease time.Duration
}

// Preemption says when a higher process takes over from a healthy coordinator.
type Preemption struct {
	Policy office.Policy
	Stable time.Duration
}

// Timing are the group's waits; see office.Config.
type Timing struct {
	Heartbeat, SuspicionTimeout, Stagger time.Duration
	// ReplyTimeout is T, the time within which a peer answers. If it is Measured, that
	// is what it takes in a network without delays.
	ReplyTimeout time.Duration
	Measured     bool
	// DrainTimeout is how long the application may take to stop.
	DrainTimeout time.Duration
}

// Probe asks the application over HTTP whether it is well.
type Probe struct {
	URL      string
	Period   time.Duration
	Timeout  time.Duration
	Failures int
}

// List is one version of the member list.
type List struct {
	Version uint32
	Members []Member
	// Previous is the list before this one, nil if the file doesn't say: then it
	// is the one that the agent has adopted last.
	Previous *List
	// Departed are members of the previous list that no longer exist.
	Departed []string
	// Floor is a term that nobody exceeded under any list before Previous.
	Floor election.Term
}

// Member is one process. The list is in the order of the ring.
type Member struct {
	Name     string
	Priority election.Priority
	// Address is host:port of its agent. It is empty if an operator doesn't know
	// yet where that is.
	Address string
}
