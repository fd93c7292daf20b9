package v1

// Safety says what it takes to be coordinator.
type Safety struct {
	// mode says what it takes to be coordinator. Available: to win the election;
	// each side of a divided network has its coordinator. Majority: unexpired
	// grants of a majority of the members too, so that there is one at most; a
	// grant is free at once when the process that had it is seen to have ended.
	// Strict: as Majority, but a lease is always waited out. While the group runs,
	// it can change between Majority and Strict only.
	// +optional
	// +kubebuilder:default=Majority
	Mode SafetyMode `json:"mode,omitempty"`

	// leaseMillis is how long a grant lasts unless it is renewed: more than two
	// heartbeats. Available mode has no use for it. It can't change while the
	// group runs.
	// +optional
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	LeaseMillis int32 `json:"leaseMillis,omitempty"`
}

// SafetyMode says what it takes to be coordinator.
//
// +kubebuilder:validation:Enum=Available;Majority;Strict
type SafetyMode string

// The modes.
const (
	// Available: whoever wins the election. Each side of a divided network has
	// its coordinator.
	Available SafetyMode = "Available"
	// Majority: whoever also has unexpired grants of a majority of the members. No
	// two are coordinator at once.
	Majority SafetyMode = "Majority"
	// Strict: the same, without the assumption that a process which is seen to
	// have ended has ended.
	Strict SafetyMode = "Strict"
)

// Preemption says when a member takes over from a healthy coordinator of lower
// priority.
type Preemption struct {
	// policy is Always: as soon as it could stand; WhenStable: when it could have
	// stood for stableSeconds; or Never.
	// +optional
	// +kubebuilder:default=WhenStable
	Policy PreemptionPolicy `json:"policy,omitempty"`

	// stableSeconds is how long a member must have been able to stand before it
	// takes over, and how long one that stepped down stays away.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	StableSeconds *int32 `json:"stableSeconds,omitempty"`
}

// PreemptionPolicy says when a higher member takes over.
//
// +kubebuilder:validation:Enum=Always;WhenStable;Never
type PreemptionPolicy string

// The policies.
const (
	// Always: as soon as it could stand.
	PreemptAlways PreemptionPolicy = "Always"
	// WhenStable: when it could have stood for stableSeconds.
	PreemptWhenStable PreemptionPolicy = "WhenStable"
	// Never: not while the coordinator is well.
	PreemptNever PreemptionPolicy = "Never"
)

// Timing are the waits of the election. What isn't set is derived.
//
// +kubebuilder:validation:XValidation:rule="!has(self.patienceMillis) || self.patienceMillis > self.heartbeatMillis",message="patienceMillis must be more than heartbeatMillis",messageExpression="'patienceMillis (%d) must be more than heartbeatMillis (%d): %d is usual'.format([self.patienceMillis, self.heartbeatMillis, 4 * self.heartbeatMillis])",fieldPath=".patienceMillis"
// +kubebuilder:validation:XValidation:rule="!has(self.replyMillis) || self.replyMillis < (has(self.patienceMillis) ? self.patienceMillis : 4 * self.heartbeatMillis)",message="replyMillis must be less than patienceMillis",messageExpression="'replyMillis (%d) must be less than patienceMillis (%d)'.format([self.replyMillis, has(self.patienceMillis) ? self.patienceMillis : 4 * self.heartbeatMillis])",fieldPath=".replyMillis"
type Timing struct {
	// heartbeatMillis is the time between two signs of life.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	HeartbeatMillis int32 `json:"heartbeatMillis,omitempty"`

	// patienceMillis is the silence after which a member is suspected of having
	// crashed: four heartbeats, if not set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	PatienceMillis *int32 `json:"patienceMillis,omitempty"`

	// staggerMillis is how much longer a member waits with an election for each
	// live one above it: half a heartbeat, if not set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60000
	StaggerMillis *int32 `json:"staggerMillis,omitempty"`

	// replyMillis is the time within which a live member answers. If not set, it
	// follows the delays that the agents measure.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	ReplyMillis *int32 `json:"replyMillis,omitempty"`

	// drainMillis is how long an application may take to stop before the role is
	// handed on.
	// +optional
	// +kubebuilder:default=5000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	DrainMillis *int32 `json:"drainMillis,omitempty"`
}

// Application says what the application has to do with the election. Whether it
// is probed, its pod says: in the annotation conclave.dev/probe.
type Application struct {
	// session is Required: a member stands only while its application holds a
	// session open; or Optional: so it does from the first session on.
	// +optional
	// +kubebuilder:default=Optional
	Session SessionPolicy `json:"session,omitempty"`
}

// SessionPolicy says whether a member stands without a session.
//
// +kubebuilder:validation:Enum=Optional;Required
type SessionPolicy string

// The policies.
const (
	// Optional: a member stands; from its application's first session on, only
	// while one is open.
	SessionOptional SessionPolicy = "Optional"
	// Required: a member stands only while its application holds a session open.
	SessionRequired SessionPolicy = "Required"
)

// CoordinatorService is a Service that leads to the coordinator.
type CoordinatorService struct {
	// name is that of the Service, which the operator makes in the group's
	// namespace. It takes over none that is there already.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a Service, such as ledger-coordinator: lower-case letters, digits and -, with a letter in front"
	Name string `json:"name"`

	// ports are those of the Service.
	// +required
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.size() == 1 || self.all(p, has(p.name))",message="each of several ports needs a name"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(p.name) || self.exists_one(other, has(other.name) && other.name == p.name))",message="two ports have the same name: give each one of its own"
	Ports []ServicePort `json:"ports"`
}

// ServicePort is a port of a Service.
type ServicePort struct {
	// name tells the ports apart, if there are several.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a port, such as http: lower-case letters, digits and -"
	Name string `json:"name,omitempty"`

	// port is where the Service listens.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// targetPort is where the application in the pod listens: on port, if not set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetPort *int32 `json:"targetPort,omitempty"`

	// protocol is TCP, UDP or SCTP.
	// +optional
	// +kubebuilder:default=TCP
	Protocol Protocol `json:"protocol,omitempty"`
}

// Protocol is what a port speaks.
//
// +kubebuilder:validation:Enum=TCP;UDP;SCTP
type Protocol string

// The protocols.
const (
	// TCP: streams.
	TCP Protocol = "TCP"
	// UDP: datagrams.
	UDP Protocol = "UDP"
	// SCTP: messages in streams; not every cluster has it.
	SCTP Protocol = "SCTP"
)
