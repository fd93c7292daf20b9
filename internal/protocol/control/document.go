package control

// A group's Document is the key DocumentKey of a ConfigMap of the name
// ConfigMapName(group), which is mounted into the pods, and it is pushed to
// their agents. AuthoritiesKey has the certificates of the authorities, in PEM.
const (
	DocumentKey    = "group.yaml"
	AuthoritiesKey = "ca.pem"
)

// ConfigMapName is the name of a group's ConfigMap.
func ConfigMapName(group string) string { return "conclave-" + group }

// Document tells an agent a group, in YAML or JSON. An agent goes by the one with
// the highest revision that it has ever seen of a group, wherever it came from.
type Document struct {
	// UID tells this group from an earlier one of the same name.
	UID string `json:"uid"`
	// Generation is that of the spec which the settings are from.
	Generation int64 `json:"generation"`
	// Revision rises with each change of the document, and from one group to the
	// next one of the same name.
	Revision int64 `json:"revision"`
	// Group is written as in an agent's file. A member without an address isn't
	// known to be anywhere yet.
	Group Group `json:"group"`
}

// Group is a group as it stands in an agent's file.
type Group struct {
	Name        string      `json:"name"`
	Algorithm   string      `json:"algorithm"`
	Safety      Safety      `json:"safety"`
	Preemption  Preemption  `json:"preemption"`
	Timing      Timing      `json:"timing"`
	Application Application `json:"application"`
	Version     uint32      `json:"version"`
	Members     []Member    `json:"members"`
	Previous    *List       `json:"previous,omitempty"`
	Departed    []string    `json:"departed,omitempty"`
	Floor       uint64      `json:"floor,omitempty"`
}

// Safety is the group's safety.
type Safety struct {
	Mode        string `json:"mode"`
	LeaseMillis int32  `json:"leaseMillis"`
}

// Preemption is the group's preemption.
type Preemption struct {
	Policy        string `json:"policy"`
	StableSeconds int32  `json:"stableSeconds"`
}

// Timing has the group's waits. What is nil is derived by the agent.
type Timing struct {
	HeartbeatMillis int32  `json:"heartbeatMillis"`
	PatienceMillis  *int32 `json:"patienceMillis,omitempty"`
	StaggerMillis   *int32 `json:"staggerMillis,omitempty"`
	ReplyMillis     *int32 `json:"replyMillis,omitempty"`
	DrainMillis     *int32 `json:"drainMillis,omitempty"`
}

// Application is what the application has to do with it.
type Application struct {
	Session string `json:"session"`
}

// Member is a member of a list, in the order of the ring.
type Member struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
	Address  string `json:"address,omitempty"`
}

// List is a list of members that another one has replaced.
type List struct {
	Version uint32   `json:"version"`
	Members []Member `json:"members"`
}
