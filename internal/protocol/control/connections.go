package control

// Connections is what an agent reports of the connections of clients that it carries, on request. What has happened
// counts since the agent has started.
type Connections struct {
	Open    int64 `json:"open"`
	Waiting int64 `json:"waiting"`
	// WaitedInVain were given up, and Reset because their coordinator had lost the office.
	WaitedInVain uint64 `json:"waitedInVain"`
	Reset        uint64 `json:"reset"`
	// Refused were too many, or took no bytes.
	Refused     uint64 `json:"refused"`
	FailedDials uint64 `json:"failedDials"`
}

// Wait is how connections waited for a coordinator, until its application accepted the first ones.
type Wait struct {
	Term        uint64 `json:"term"`
	Connections uint64 `json:"connections"`
	// InVain were given up, before the tenure or in it.
	InVain        uint64 `json:"inVain,omitempty"`
	LongestMicros int64  `json:"longestMicros"`
}

// Add adds what another agent has observed.
func (w *Wait) Add(other *Wait) {
	w.Connections, w.InVain = w.Connections+other.Connections, w.InVain+other.InVain
	w.LongestMicros = max(w.LongestMicros, other.LongestMicros)
}
