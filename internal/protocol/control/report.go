package control

import "time"

// Agent is what an agent says about itself.
type Agent struct {
	Pod string `json:"pod"`
	// Life tells this life of the process from its other ones.
	Life uint32 `json:"life"`
	// Build is the version of its program.
	Build string `json:"build,omitempty"`
	// Groups are those that its pod named when it was made: it takes part in them
	// when it is told to, and in no others.
	Groups []string `json:"groups"`
}

// Report is what an agent knows about one of its groups.
type Report struct {
	Group string `json:"group"`
	Pod   string `json:"pod"`
	// UID, Generation, and Revision are those of the Document that it goes by.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Revision   int64  `json:"revision"`
	// Version is that of the member list in force here, and Digest tells two lists
	// of the same version, or with different lists before, apart.
	Version uint32 `json:"version"`
	Digest  string `json:"digest"`

	// Coordinator is empty while there is none.
	Coordinator string `json:"coordinator,omitempty"`
	Term        uint64 `json:"term"`
	// ElectedAt is when the agent first knew of this coordinator in this term.
	ElectedAt time.Time `json:"electedAt,omitzero"`
	Electing  bool      `json:"electing,omitempty"`
	// Eligible: it would lead if it were the highest. Excluded: the operator has
	// asked it not to.
	Eligible bool `json:"eligible"`
	Excluded bool `json:"excluded,omitempty"`

	// Processes are the process status table, highest priority first.
	Processes []Row `json:"processes"`
	// Problems are why the agent isn't ready, in this group or as a whole.
	Problems []string `json:"problems,omitempty"`
	// ChangedAt is when the agent knew what is new in this report.
	ChangedAt time.Time `json:"changedAt"`
}

// Row is a row of the process status table.
type Row struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
	// Status is Coordinator, Normal or Crashed.
	Status    string `json:"status"`
	Connected bool   `json:"connected"`
}

// Left says that an agent takes no part in a group any more.
type Left struct {
	Group string `json:"group"`
	UID   string `json:"uid"`
}
