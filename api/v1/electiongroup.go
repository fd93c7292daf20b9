package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ElectionGroup elects the coordinator among pods: the live one with the
// highest priority. An agent in each pod talks to the other agents directly;
// what they agree on is shown in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=electiongroups,singular=electiongroup,shortName=eg
// +kubebuilder:printcolumn:name="Algorithm",type=string,JSONPath=`.spec.algorithm`
// +kubebuilder:printcolumn:name="Coordinator",type=string,JSONPath=`.status.coordinator.pod`
// +kubebuilder:printcolumn:name="Term",type=integer,JSONPath=`.status.term`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyMembers`,description="members that are up"
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.members`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Elected",type=date,priority=1,JSONPath=`.status.coordinator.electedAt`
// +kubebuilder:printcolumn:name="Safety",type=string,priority=1,JSONPath=`.spec.safety.mode`
// +kubebuilder:printcolumn:name="Agreed",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Agreed")].status`
// +kubebuilder:printcolumn:name="List",type=integer,priority=1,JSONPath=`.status.memberList.version`
// +kubebuilder:printcolumn:name="State",type=string,priority=1,JSONPath=`.status.memberList.state`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have 63 characters at most: it is a part of the label role.conclave.dev/NAME",fieldPath=".metadata"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="the status can't be taken away: it remembers the term and the member list",fieldPath=".status"
// +kubebuilder:validation:XValidation:rule="self.spec.safety.mode == 'Available' || !has(self.status) || !has(self.status.coordinator) || self.status.coordinator.term >= self.status.term",message="coordinator is of an older term than term: this report is stale",fieldPath=".status.coordinator"
type ElectionGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says who takes part, and how the coordinator is elected.
	// +required
	Spec ElectionGroupSpec `json:"spec"`

	// status is what the agents say, as the operator last heard it.
	// +optional
	Status ElectionGroupStatus `json:"status,omitzero"`
}

// ElectionGroupList is a list of groups.
//
// +kubebuilder:object:root=true
type ElectionGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ElectionGroup `json:"items"`
}

// ElectionGroupSpec says who takes part, and how the coordinator is elected.
//
// Agents adopt a change one after the other. Most changes a group survives; two
// of safety it wouldn't, hence the rules. A holder counts its own lease and a
// member its own: with different ones, the holder could go on after a member's
// promise has run out. And a member in Available mode promises nothing, but its
// answers would count for those who believe in a majority.
//
// +kubebuilder:validation:XValidation:rule="has(self.members) || has(self.selector)",message="say who takes part: give members, or selector with priorityFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.members) || !has(self.selector)",message="members and selector exclude each other: leave out one"
// +kubebuilder:validation:XValidation:rule="!has(self.selector) || has(self.priorityFrom)",message="selector needs priorityFrom: give ordinal, annotation or nodeLabel"
// +kubebuilder:validation:XValidation:rule="has(self.selector) || !has(self.priorityFrom)",message="priorityFrom goes with selector: members have their own priorities"
// +kubebuilder:validation:XValidation:rule="self.safety.mode == 'Available' || self.safety.leaseMillis > 2 * self.timing.heartbeatMillis",message="leaseMillis must be more than two heartbeats",messageExpression="'leaseMillis (%d) must be more than two heartbeats (%d): %d is usual'.format([self.safety.leaseMillis, 2 * self.timing.heartbeatMillis, 5 * self.timing.heartbeatMillis])",fieldPath=".safety.leaseMillis"
// +kubebuilder:validation:XValidation:rule="(self.safety.mode == 'Available') == (oldSelf.safety.mode == 'Available')",message="mode can't change from or to Available while the group runs, or two could be coordinator: delete the group and make it anew",fieldPath=".safety.mode"
// +kubebuilder:validation:XValidation:rule="self.safety.leaseMillis == oldSelf.safety.leaseMillis",message="leaseMillis can't change while the group runs, or two could be coordinator: delete the group and make it anew",fieldPath=".safety.leaseMillis"
type ElectionGroupSpec struct {
	// algorithm is the way the coordinator is found. All of them elect the same
	// one; they differ in who talks to whom. If it changes, each agent takes the
	// new one when it restarts the group.
	// +optional
	// +kubebuilder:default=StatusTable
	Algorithm Algorithm `json:"algorithm,omitempty"`

	// members are the pods that take part, by name, with their priorities: those
	// of a StatefulSet, say. They may not exist yet. Their order is that of the
	// ring in the ring algorithms. Give members or selector.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:XValidation:rule="self.exists(m, m.priority > 0)",message="every member has priority 0: one at least must be above, to be elected"
	// +kubebuilder:validation:XValidation:rule="self.transformMapEntry(i, m, m.priority > 0, {m.priority: i}).size() >= 0",message="two members have the same priority: each needs one of its own, or 0 to never stand"
	Members []Member `json:"members,omitempty"`

	// selector finds the pods that take part by their labels, among those of the
	// group's namespace that name the group in the annotation
	// conclave.dev/groups. Give members or selector.
	// +optional
	Selector *PodSelector `json:"selector,omitempty"`

	// priorityFrom says where the priorities of the selected pods come from.
	// +optional
	PriorityFrom *PriorityFrom `json:"priorityFrom,omitempty"`

	// safety says what it takes to be coordinator.
	// +optional
	// +kubebuilder:default={}
	Safety Safety `json:"safety,omitzero"`

	// preemption says when a member takes over from a healthy coordinator of
	// lower priority.
	// +optional
	// +kubebuilder:default={}
	Preemption Preemption `json:"preemption,omitzero"`

	// timing are the waits of the election.
	// +optional
	// +kubebuilder:default={}
	Timing Timing `json:"timing,omitzero"`

	// application says what the application has to do with it.
	// +optional
	// +kubebuilder:default={}
	Application Application `json:"application,omitzero"`

	// service is a Service that leads to the coordinator. Without it, there is none.
	// +optional
	Service *CoordinatorService `json:"service,omitempty"`
}

// Algorithm is the name of an election.
//
// +kubebuilder:validation:Enum=Bully;StatusTable;RingAllIDs;RingChampion;RingActiveList;RingSkip
type Algorithm string

// The algorithms.
const (
	// Bully: whoever finds out challenges all above it, and the highest that
	// answers wins.
	Bully Algorithm = "Bully"
	// StatusTable: a bully with a table of who is alive; it asks one after the
	// other, from the top.
	StatusTable Algorithm = "StatusTable"
	// RingAllIDs: every number goes all the way round the ring, and who started
	// picks the highest.
	RingAllIDs Algorithm = "RingAllIDs"
	// RingChampion: as RingAllIDs, but each puts its own number in the place of a
	// lower one.
	RingChampion Algorithm = "RingChampion"
	// RingActiveList: each collects the numbers of all live ones; nothing is
	// announced.
	RingActiveList Algorithm = "RingActiveList"
	// RingSkip: one list goes round the ring, past those that have crashed.
	RingSkip Algorithm = "RingSkip"
)
