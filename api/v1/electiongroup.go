package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ElectionGroup elects a coordinator among pods: the live pod with the highest
// priority. The agents in the pods run the election among themselves. The status
// shows the result.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=electiongroups,singular=electiongroup,shortName=eg
// +kubebuilder:printcolumn:name="Coordinator",type=string,JSONPath=`.status.coordinator.pod`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Up",type=integer,JSONPath=`.status.readyMembers`,description="The number of members that are up"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Members",type=integer,priority=1,JSONPath=`.status.members`
// +kubebuilder:printcolumn:name="Term",type=integer,priority=1,JSONPath=`.status.term`
// +kubebuilder:printcolumn:name="Elected",type=date,priority=1,JSONPath=`.status.coordinator.electedAt`
// +kubebuilder:printcolumn:name="Algorithm",type=string,priority=1,JSONPath=`.spec.algorithm`
// +kubebuilder:printcolumn:name="Safety",type=string,priority=1,JSONPath=`.spec.safety.mode`
// +kubebuilder:printcolumn:name="Available",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="List",type=integer,priority=1,JSONPath=`.status.protocol.memberList.version`
// +kubebuilder:printcolumn:name="State",type=string,priority=1,JSONPath=`.status.protocol.memberList.state`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: it is part of the label role.conclave.dev/NAME",fieldPath=".metadata"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status cannot be removed: it stores the term and the member list",fieldPath=".status"
// +kubebuilder:validation:XValidation:rule="self.spec.safety.mode == 'Available' || !has(self.status) || !has(self.status.coordinator) || self.status.coordinator.term >= self.status.term",message="coordinator.term must not be lower than term: this update is stale",fieldPath=".status.coordinator"
type ElectionGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines the members, and how they elect the coordinator.
	// +required
	Spec ElectionGroupSpec `json:"spec"`

	// status is what the agents last reported to the operator.
	// +optional
	Status ElectionGroupStatus `json:"status,omitzero"`
}

// ElectionGroupList is a list of ElectionGroups.
//
// +kubebuilder:object:root=true
type ElectionGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ElectionGroup `json:"items"`
}

// ElectionGroupSpec defines the members, and how they elect the coordinator.
//
// Agents apply a change one after the other. One change is not safe while agents differ,
// so the rules reject it: if the mode changed from or to Available, members that need a
// majority would count grants of members in Available mode, which grant every request.
//
// +kubebuilder:validation:XValidation:rule="has(self.members) || has(self.selector)",message="members or selector is required: set members, or selector with priorityFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.members) || !has(self.selector)",message="members and selector are mutually exclusive: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.selector) || has(self.priorityFrom)",message="selector requires priorityFrom: set its field ordinal, annotation or nodeLabel"
// +kubebuilder:validation:XValidation:rule="has(self.selector) || !has(self.priorityFrom)",message="priorityFrom requires selector: declared members have their own priorities"
// +kubebuilder:validation:XValidation:rule="!has(self.preemption.spread) || has(self.priorityFrom) && !has(self.priorityFrom.ordinal)",message="spread requires selector, and priorityFrom with annotation or nodeLabel: declared members and ordinals have an order of their own",fieldPath=".preemption.spread"
// +kubebuilder:validation:XValidation:rule="self.safety.mode == 'Available' || self.safety.leaseMillis > 2 * self.timing.heartbeatMillis",message="leaseMillis must be greater than two heartbeats",messageExpression="'leaseMillis (%d) must be greater than two heartbeats (%d), for example %d'.format([self.safety.leaseMillis, 2 * self.timing.heartbeatMillis, 5 * self.timing.heartbeatMillis])",fieldPath=".safety.leaseMillis"
// +kubebuilder:validation:XValidation:rule="!has(self.witness) || self.safety.mode == 'Majority'",message="witness requires mode Majority: in Available, members grant nothing; in Strict, a witness that is lost would wait for a confirmation",fieldPath=".witness"
// +kubebuilder:validation:XValidation:rule="(self.safety.mode == 'Available') == (oldSelf.safety.mode == 'Available')",message="mode cannot change from or to Available while the group exists, or there could be two coordinators: delete the group and create it again",fieldPath=".safety.mode"
type ElectionGroupSpec struct {
	// algorithm is the election algorithm. All algorithms elect the same process;
	// they differ in the messages that they exchange. After a change, each agent
	// uses the new algorithm when it restarts the group.
	// +optional
	// +kubebuilder:default=StatusTable
	Algorithm Algorithm `json:"algorithm,omitempty"`

	// members lists the pods of the group by name, with their priorities, for
	// example the pods of a StatefulSet. The pods need not exist yet. The ring
	// algorithms use this order as the order of the ring. Exactly one of members
	// and selector must be set.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(m, !m.pod.startsWith('conclave-witness-'))",message="names that begin with conclave-witness- are those of the operator's witnesses: rename the pod"
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.exists(m, m.priority > 0)",message="every member has priority 0: at least one member must have a priority above 0"
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.priority == 0 || self.exists_one(other, other.priority == m.priority))",message="two members have the same priority: priorities above 0 must be unique"
	Members []Member `json:"members,omitempty"`

	// selector selects the pods of the group by their labels, among the pods in
	// the group's namespace that have an agent. If a pod has the annotation
	// conclave.dev/groups, that must list the group. Exactly one of members and
	// selector must be set.
	// +optional
	// +structType=atomic
	Selector *PodSelector `json:"selector,omitempty"`

	// priorityFrom is the source of the selected pods' priorities. It is required
	// with selector.
	// +optional
	// +structType=atomic
	PriorityFrom *PriorityFrom `json:"priorityFrom,omitempty"`

	// witness is Managed, or not set. With Managed, a group of one or two members has
	// three votes: the others are pods of the operator, which are never elected, on other
	// nodes if there are any. So the group survives the loss of a member, and a new member
	// replaces a single one. It requires mode Majority, and an operator with witnesses.
	// +optional
	// +kubebuilder:validation:Enum=Managed
	Witness string `json:"witness,omitempty"`

	// safety defines what a process needs to become coordinator.
	// +optional
	// +kubebuilder:default={}
	Safety Safety `json:"safety,omitzero"`

	// preemption defines when a member takes over from a healthy coordinator with
	// a lower priority.
	// +optional
	// +kubebuilder:default={}
	Preemption Preemption `json:"preemption,omitzero"`

	// timing defines the intervals and timeouts of the election.
	// +optional
	// +kubebuilder:default={}
	Timing Timing `json:"timing,omitzero"`

	// application defines how the application takes part in the election.
	// +optional
	// +kubebuilder:default={}
	Application Application `json:"application,omitzero"`

	// service is a Service that points at the coordinator. If it is not set, the
	// operator creates none.
	// +optional
	Service *CoordinatorService `json:"service,omitempty"`
}

// WitnessManaged is the value of spec.witness: the operator provides one.
const WitnessManaged = "Managed"

// Algorithm is the name of an election algorithm.
//
// +kubebuilder:validation:Enum=Bully;StatusTable;RingAllIDs;RingChampion;RingActiveList;RingSkip
type Algorithm string

// The algorithms.
const (
	// Bully: a process that detects the loss of the coordinator sends a challenge to
	// all processes with a higher priority, and the highest one that answers wins.
	Bully Algorithm = "Bully"
	// StatusTable: a bully algorithm with a table of the live processes, which asks
	// one process after the other, from the highest priority down.
	StatusTable Algorithm = "StatusTable"
	// RingAllIDs: the priority of each live process travels all the way round the
	// ring, and the process that started the election picks the highest one.
	RingAllIDs Algorithm = "RingAllIDs"
	// RingChampion: like RingAllIDs, but each process replaces a lower priority by
	// its own, so that only the highest one returns to its sender.
	RingChampion Algorithm = "RingChampion"
	// RingActiveList: each process collects the priorities of all live processes and
	// derives the coordinator from them, without an announcement.
	RingActiveList Algorithm = "RingActiveList"
	// RingSkip: one list of the live processes travels round the ring, and then the
	// coordinator does. Crashed processes are skipped.
	RingSkip Algorithm = "RingSkip"
)
