package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ElectionGroupStatus is what the agents say, as the operator last heard it. It
// is written when that changes, and at no other time.
//
// The rules hold whoever writes: an operator with a stale cache, a second one
// that believes it leads, or one that was killed between two writes.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.term) || (has(self.term) && self.term >= oldSelf.term)",message="term never goes back: this report is stale",fieldPath=".term"
// +kubebuilder:validation:XValidation:rule="!has(self.coordinator) || (has(self.term) && self.coordinator.term <= self.term)",message="coordinator is of a later term than term: write both",fieldPath=".coordinator"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.memberList) || has(self.memberList)",message="memberList can't be taken away: it remembers which lists may still be in force",fieldPath=".memberList"
type ElectionGroupStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// coordinator is who leads, as the agents say. Without it, nobody does.
	// +optional
	Coordinator *Coordinator `json:"coordinator,omitempty"`

	// lastCoordinator is the coordinator that the group had last. It is set only
	// while the group has none.
	// +optional
	LastCoordinator *LastCoordinator `json:"lastCoordinator,omitempty"`

	// term is the newest one in which a coordinator was reported. It never goes
	// back, and stays when the coordinator has gone.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=17592186044415
	Term int64 `json:"term,omitempty"`

	// members is how many members the list has.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Members *int32 `json:"members,omitempty"`

	// readyMembers is how many of them are Coordinator or Normal.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	ReadyMembers *int32 `json:"readyMembers,omitempty"`

	// processes are the process status table, highest priority first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Processes []Process `json:"processes,omitempty"`

	// memberList is the newest list of members that agents were given.
	// +optional
	MemberList *MemberList `json:"memberList,omitempty"`

	// conditions are Ready, CoordinatorElected, Agreed and AgentsConnected.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Coordinator is who leads. Its fencing token isn't here: only the agent beside
// the coordinator can tell whether it still has it.
type Coordinator struct {
	// pod is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// priority is its priority.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048575
	Priority int32 `json:"priority"`

	// term is the one that it was elected in.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=17592186044415
	Term int64 `json:"term"`

	// electedAt is when its tenure began, on the clock of the agent that said so.
	// +required
	ElectedAt metav1.MicroTime `json:"electedAt"`
}

// LastCoordinator is the coordinator that a group without coordinator had last.
type LastCoordinator struct {
	// pod is the name of its pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// lossReportedAt is the time at which the operator reported the loss with an
	// Event: the group had no coordinator for longer than an election takes. It is
	// unset before that, and if the operator can't reach the agents.
	// +optional
	LossReportedAt *metav1.Time `json:"lossReportedAt,omitempty"`
}

// Process is a row of the process status table.
type Process struct {
	// pod is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// priority is its priority.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048575
	Priority int32 `json:"priority"`

	// status is what the agents say about it; Unknown, if none says anything, or
	// some say one thing and some another.
	// +required
	Status ProcessStatus `json:"status"`

	// reason is why, in one word, where the status doesn't say it all.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason ProcessReason `json:"reason,omitempty"`

	// message is why, in a sentence, and what to do about it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`

	// since is when status last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// ProcessStatus is the status of a process.
//
// +kubebuilder:validation:Enum=Coordinator;Normal;Crashed;Unknown
type ProcessStatus string

// The statuses.
const (
	// Coordinator: it leads.
	ProcessCoordinator ProcessStatus = "Coordinator"
	// Normal: it is up, and follows.
	ProcessNormal ProcessStatus = "Normal"
	// Crashed: the other agents take it for dead.
	ProcessCrashed ProcessStatus = "Crashed"
	// Unknown: no agent says anything about it, or they contradict each other.
	ProcessUnknown ProcessStatus = "Unknown"
)

// ProcessReason says why a row is as it is. It is no enum in the schema, so that
// an operator can say something new to an older one.
type ProcessReason string

// The reasons.
const (
	// PodMissing: there is no pod of this name.
	ProcessPodMissing ProcessReason = "PodMissing"
	// PodPending: the pod isn't running yet.
	ProcessPodPending ProcessReason = "PodPending"
	// PodTerminating: the pod is being deleted.
	ProcessPodTerminating ProcessReason = "PodTerminating"
	// NoAgent: the pod runs without an agent.
	ProcessNoAgent ProcessReason = "NoAgent"
	// NotInGroup: the pod doesn't name the group in its annotation, or didn't when it was made.
	ProcessNotInGroup ProcessReason = "NotInGroup"
	// Unreachable: the operator can't reach its agent. What the status says
	// is the other agents' word.
	ProcessUnreachable ProcessReason = "Unreachable"
	// Disputed: the agents say different things about it.
	ProcessDisputed ProcessReason = "Disputed"
	// NotEligible: it is up, and its application keeps it from standing.
	ProcessNotEligible ProcessReason = "NotEligible"
)
