package v1

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Safety defines what a process needs to become coordinator.
type Safety struct {
	// mode is Available, Majority or Strict. In Available mode, the winner of an
	// election is coordinator. This mode does not prevent split brain: each side of a
	// network partition has its own coordinator. In Majority mode, a coordinator also
	// needs unexpired grants of a majority of the members, so there is at most one.
	// Majority relies on two reports that a process has ended. Members release a grant
	// at once when the holder's port refuses connections. And a member leaves the list
	// when the API server has no pod of its name. Either report can be wrong: pods on a
	// node that is cut off run on when they are force-deleted, or when the Node object
	// is deleted, which deletes its pods. If they are a majority of the members, there
	// can be two coordinators. Strict is like Majority, but relies on neither. Members
	// wait until the lease has expired. A deleted pod remains in the API server, its
	// member counts, and no pod takes its name, until it is known to have stopped. The
	// kubelet reports that its containers have ended, its node has the taint
	// node.kubernetes.io/out-of-service, or a user confirms it by the annotation
	// conclave.dev/confirm-stopped of the group. Without a running operator, pods of a
	// group in Strict mode are not deleted. While the group exists, the mode can change
	// only between Majority and Strict.
	// +optional
	// +kubebuilder:default=Majority
	Mode SafetyMode `json:"mode,omitempty"`

	// leaseMillis is the time after which a grant expires unless it is renewed. It
	// must be greater than two heartbeats, except in Available mode, which has no
	// grants. While renewals are late, leases grow, up to 2000 unless this is more, and
	// the suspicion timeout in proportion. A change of this longest lease begins a new
	// version of the member list, and while members have different leases, the shorter
	// one counts between two of them.
	// +optional
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	LeaseMillis int32 `json:"leaseMillis,omitempty"`
}

// SafetyMode defines what a process needs to become coordinator.
//
// +kubebuilder:validation:Enum=Available;Majority;Strict
type SafetyMode string

// The modes.
const (
	// Available: the winner of an election is coordinator. Each side of a network
	// partition has its own coordinator.
	Available SafetyMode = "Available"
	// Majority: a coordinator also needs unexpired grants of a majority of the members,
	// so there is at most one coordinator at a time, unless pods run on after they were
	// deleted from the API server.
	Majority SafetyMode = "Majority"
	// Strict: like Majority, without the assumption that a process has ended when others
	// detect that it has, or when its pod was deleted.
	Strict SafetyMode = "Strict"
)

// Preemption defines when a member takes over from a healthy coordinator with a lower
// priority.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spread) || self.policy != 'Never'",message="spread requires policy Always or WhenStable: with Never, no member takes over from a healthy coordinator",fieldPath=".spread"
type Preemption struct {
	// policy is Always, WhenStable or Never. With Always, a member takes over as soon
	// as it is ready to lead; with WhenStable, when it has been ready for stableMillis.
	// +optional
	// +kubebuilder:default=WhenStable
	Policy PreemptionPolicy `json:"policy,omitempty"`

	// stableMillis is the time for which a member must have been ready to lead before it
	// takes over, and for which a member that stepped down doesn't take over again.
	// +optional
	// +kubebuilder:default=5000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400000
	StableMillis *int32 `json:"stableMillis,omitempty"`

	// spread is Node or Zone. The coordinators of all groups with the same value are
	// spread over the nodes or the zones of their members, so that one has at most one
	// coordinator more than another. Among members that priorityFrom prefers equally, the
	// operator gives the highest priority to one in the right place, which then takes
	// over. A group moves at most once in five minutes. It requires selector, and
	// priorityFrom with annotation or nodeLabel. By default, coordinators aren't spread.
	// +optional
	Spread Spread `json:"spread,omitempty"`
}

// Stable returns the time for which a member must have been ready before it takes over.
func (p *Preemption) Stable() time.Duration { return millis(p.StableMillis, 5000) }

// millis returns an optional setting, or its default.
func millis(setting *int32, byDefault int32) time.Duration {
	return time.Duration(*cmp.Or(setting, &byDefault)) * time.Millisecond
}

// Spread is over what coordinators are spread.
//
// +kubebuilder:validation:Enum=Node;Zone
type Spread string

// Over what coordinators are spread.
const (
	// SpreadNode: over nodes.
	SpreadNode Spread = "Node"
	// SpreadZone: over the values of the node label topology.kubernetes.io/zone.
	SpreadZone Spread = "Zone"
)

// PreemptionPolicy defines when a member with a higher priority takes over.
//
// +kubebuilder:validation:Enum=Always;WhenStable;Never
type PreemptionPolicy string

// The policies.
const (
	// Always: as soon as the member is eligible.
	PreemptAlways PreemptionPolicy = "Always"
	// WhenStable: when the member has been eligible for stableMillis.
	PreemptWhenStable PreemptionPolicy = "WhenStable"
	// Never: not while the coordinator is healthy.
	PreemptNever PreemptionPolicy = "Never"
)

// Timing defines the intervals and timeouts of the election. The defaults of optional
// fields are derived from the others.
//
// +kubebuilder:validation:XValidation:rule="!has(self.suspicionTimeoutMillis) || self.suspicionTimeoutMillis > self.heartbeatMillis",message="suspicionTimeoutMillis must be greater than heartbeatMillis",messageExpression="'suspicionTimeoutMillis (%d) must be greater than heartbeatMillis (%d), for example %d'.format([self.suspicionTimeoutMillis, self.heartbeatMillis, 4 * self.heartbeatMillis])",fieldPath=".suspicionTimeoutMillis"
// +kubebuilder:validation:XValidation:rule="!has(self.replyMillis) || self.replyMillis < (has(self.suspicionTimeoutMillis) ? self.suspicionTimeoutMillis : 4 * self.heartbeatMillis)",message="replyMillis must be less than suspicionTimeoutMillis",messageExpression="'replyMillis (%d) must be less than suspicionTimeoutMillis (%d)'.format([self.replyMillis, has(self.suspicionTimeoutMillis) ? self.suspicionTimeoutMillis : 4 * self.heartbeatMillis])",fieldPath=".replyMillis"
type Timing struct {
	// heartbeatMillis is the interval between two heartbeats.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	HeartbeatMillis int32 `json:"heartbeatMillis,omitempty"`

	// suspicionTimeoutMillis is the suspicion timeout: a member that has been silent for this
	// time is suspected to have crashed. The default is four heartbeats.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	SuspicionTimeoutMillis *int32 `json:"suspicionTimeoutMillis,omitempty"`

	// staggerMillis is the additional delay before a member starts an election, for
	// each live member with a higher priority. The default is half a heartbeat.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60000
	StaggerMillis *int32 `json:"staggerMillis,omitempty"`

	// replyMillis is the time within which a live member replies. By default, agents
	// derive it from the delays that they measure.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	ReplyMillis *int32 `json:"replyMillis,omitempty"`

	// drainMillis is the drain timeout: how long the application may take to stop
	// before its member resigns as coordinator.
	// +optional
	// +kubebuilder:default=5000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	DrainMillis *int32 `json:"drainMillis,omitempty"`
}

// SuspicionTimeout returns the time after which agents suspect a silent member.
func (t *Timing) SuspicionTimeout() time.Duration {
	return millis(t.SuspicionTimeoutMillis, 4*cmp.Or(t.HeartbeatMillis, 100))
}

// Application defines how the application takes part in the election. The pod's
// annotation conclave.dev/probe configures a health check.
type Application struct {
	// session is Required or Optional. With Required, a member is eligible only while
	// its application has an open session. With Optional, this applies after the
	// application has opened its first session.
	// +optional
	// +kubebuilder:default=Optional
	Session SessionPolicy `json:"session,omitempty"`
}

// SessionPolicy defines whether a member is eligible without a session.
//
// +kubebuilder:validation:Enum=Optional;Required
type SessionPolicy string

// The policies.
const (
	// Optional: a member is eligible without a session until its application opens the
	// first one, and then only while a session is open.
	SessionOptional SessionPolicy = "Optional"
	// Required: a member is eligible only while its application has an open session.
	SessionRequired SessionPolicy = "Required"
)

// CoordinatorService is a Service that points at the coordinator.
//
// +kubebuilder:validation:XValidation:rule="!has(self.via) || self.via != 'Agents' || self.ports.all(p, !has(p.protocol) || p.protocol == 'TCP')",message="agents carry TCP only: with via: Agents, each port must have the protocol TCP"
// +kubebuilder:validation:XValidation:rule="!has(self.via) || self.via != 'Agents' || self.ports.all(p, !has(p.targetPort) || type(p.targetPort) == int)",message="with via: Agents, targetPort must be a number"
// +kubebuilder:validation:XValidation:rule="!has(self.via) || self.via != 'Agents' || !has(self.type) || self.type == 'ClusterIP'",message="with via: Agents, type must be ClusterIP"
// +kubebuilder:validation:XValidation:rule="!has(self.proxyProtocol) || self.proxyProtocol != 'V2' || has(self.via) && self.via == 'Agents'",message="proxyProtocol needs via: Agents, because only agents send it"
type CoordinatorService struct {
	// name is the name of the Service, which the operator creates in the group's
	// namespace. It adopts an existing Service only if that has no owner, no selector, and
	// the label conclave.dev/group with the name of the group.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a Service, such as ledger-coordinator: lowercase letters, digits and hyphens, starting with a letter"
	Name string `json:"name"`

	// ports lists the ports of the Service.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.size() == 1 || self.all(p, has(p.name))",message="each of several ports must have a name"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(p.name) || self.exists_one(other, has(other.name) && other.name == p.name))",message="two ports have the same name: names must be unique"
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(other, other.port == p.port && (has(other.protocol) ? other.protocol : 'TCP') == (has(p.protocol) ? p.protocol : 'TCP')))",message="two ports have the same number and protocol"
	Ports []ServicePort `json:"ports"`

	// type is ClusterIP, or Headless for a Service without a cluster IP: its name resolves to the
	// address of the coordinator's pod. For other types, and for annotations, create the Service
	// yourself, with the label conclave.dev/group: GROUP and without a selector.
	// +optional
	// +kubebuilder:default=ClusterIP
	Type ServiceType `json:"type,omitempty"`

	// routing says when the Service routes to the coordinator: WhenReady, while its pod is ready,
	// or Always, also while it isn't. Select Always if pods become ready only when they lead.
	// +optional
	// +kubebuilder:default=WhenReady
	Routing Routing `json:"routing,omitempty"`

	// via says how clients reach the coordinator. Endpoints: the Service points at its pod. Agents: the Service points at
	// all members, whose agents carry connections to the coordinator's pod. Clients then follow an election without the
	// API server. The type must be ClusterIP, routing has no effect, and the application sees the addresses of agents
	// unless proxyProtocol is set.
	// +optional
	// +kubebuilder:default=Endpoints
	Via Via `json:"via,omitempty"`

	// waitMillis is how long agents let new connections wait while there is no coordinator; 0 refuses them at once. The
	// default is 3000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600000
	WaitMillis *int32 `json:"waitMillis,omitempty"`

	// connections says what agents do with connections to a former coordinator: Close, the default, resets them, and Keep
	// leaves them.
	// +optional
	Connections ConnectionPolicy `json:"connections,omitempty"`

	// proxyProtocol makes agents tell the application the client's address, by a header of the PROXY protocol before the
	// first byte of each connection. The application has to expect it. The default is None.
	// +optional
	ProxyProtocol ProxyProtocol `json:"proxyProtocol,omitempty"`
}

// Via is how clients of a Service reach the coordinator.
// +kubebuilder:validation:Enum=Endpoints;Agents
type Via string

// How clients of a Service reach the coordinator.
const (
	// ViaEndpoints: the Service points at the coordinator's pod.
	ViaEndpoints Via = "Endpoints"
	// ViaAgents: the agents of all members carry connections.
	ViaAgents Via = "Agents"
)

// ConnectionPolicy is what agents do with connections to a former coordinator.
// +kubebuilder:validation:Enum=Close;Keep
type ConnectionPolicy string

// What agents do with connections to a former coordinator.
const (
	// CloseConnections: they reset them.
	CloseConnections ConnectionPolicy = "Close"
	// KeepConnections: they leave them.
	KeepConnections ConnectionPolicy = "Keep"
)

// ProxyProtocol is a version of the PROXY protocol.
// +kubebuilder:validation:Enum=None;V2
type ProxyProtocol string

// The versions.
const (
	// NoProxyProtocol: there is no header.
	NoProxyProtocol ProxyProtocol = "None"
	// ProxyV2: the header is binary.
	ProxyV2 ProxyProtocol = "V2"
)

// ServiceType is the type of a Service.
// +kubebuilder:validation:Enum=ClusterIP;Headless
type ServiceType string

// The types of a Service.
const (
	// ClusterIP: the Service has an address of its own.
	ClusterIP ServiceType = "ClusterIP"
	// Headless: the name of the Service resolves to the address of the coordinator's pod.
	Headless ServiceType = "Headless"
)

// Routing is when a Service routes to the coordinator.
// +kubebuilder:validation:Enum=WhenReady;Always
type Routing string

// When a Service routes to the coordinator.
const (
	// RouteWhenReady: while the coordinator's pod is ready.
	RouteWhenReady Routing = "WhenReady"
	// RouteAlways: whether or not the pod is ready.
	RouteAlways Routing = "Always"
)

// ServicePort is a port of a Service.
type ServicePort struct {
	// name is the name of the port. It is required if there are several ports.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a port, such as http: lowercase letters, digits and hyphens"
	Name string `json:"name,omitempty"`

	// port is the port of the Service.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// targetPort is the port of the application in the pod, as a number or as the name of a container's
	// port. The default is port.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 65535 : self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.matches('[a-z]')",message="must be a number from 1 to 65535, or the name of a container's port, such as http"
	TargetPort *intstr.IntOrString `json:"targetPort,omitempty"`

	// appProtocol is the protocol of the application, such as kubernetes.io/h2c, for proxies and
	// load balancers.
	// +optional
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:MinLength=1
	AppProtocol string `json:"appProtocol,omitempty"`

	// The schema has no default for an item of a list: kubectl apply and Argo CD compare lists as a whole, and
	// would see a difference for ever.

	// protocol is TCP, UDP or SCTP. Without it, the protocol is TCP.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`

	// agentPort is the port on which agents listen with via: Agents. No container of the pods, and no other group of
	// them, may use it. The default is 7600 for the first port of the list, 7601 for the second one, and so on.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	AgentPort int32 `json:"agentPort,omitempty"`
}

// Protocol is the protocol of a port.
//
// +kubebuilder:validation:Enum=TCP;UDP;SCTP
type Protocol string

// The protocols.
const (
	// TCP is the Transmission Control Protocol.
	TCP Protocol = "TCP"
	// UDP is the User Datagram Protocol.
	UDP Protocol = "UDP"
	// SCTP is the Stream Control Transmission Protocol. Not all clusters support it.
	SCTP Protocol = "SCTP"
)
