package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ElectionGroupStatus is what the agents last reported to the operator. The operator
// writes it only when it changes.
//
// The rules protect it from any writer: an operator with a stale cache, a second
// operator that considers itself the leader, or one that was killed between two writes.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.term) || (has(self.term) && self.term >= oldSelf.term)",message="term must not decrease: this update is stale",fieldPath=".term"
// +kubebuilder:validation:XValidation:rule="!has(self.coordinator) || (has(self.term) && self.coordinator.term <= self.term)",message="coordinator.term must not be higher than term: update both",fieldPath=".coordinator"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.protocol) || has(self.protocol)",message="protocol cannot be removed: it stores which member lists may still be in force",fieldPath=".protocol"
type ElectionGroupStatus struct {
	// observedGeneration is the generation of the spec that this status reflects.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// coordinator is the coordinator that the agents report. It is not set while there
	// is none.
	// +optional
	Coordinator *Coordinator `json:"coordinator,omitempty"`

	// history has the last ten tenures that the operator has seen, with the newest first.
	// While there is a coordinator, the first is its own, and else that of the last
	// coordinator. It does not include tenures
	// that were over before the operator heard of them. The operator improves an entry
	// only when it writes the status for another reason.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []Tenure `json:"history,omitempty"`

	// term is the newest term in which a coordinator was reported. It never decreases,
	// and remains when there is no coordinator.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=70368744177663
	Term int64 `json:"term,omitempty"`

	// members is the number of members in the list.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Members *int32 `json:"members,omitempty"`

	// readyMembers is the number of members whose status is Coordinator or Normal.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	ReadyMembers *int32 `json:"readyMembers,omitempty"`

	// processes is the process status table, with the highest priority first.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=100
	Processes []Process `json:"processes,omitempty"`

	// conditions has the types Ready, Available, Progressing, Degraded and AgentsConnected,
	// and while it is True, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// protocol is what the operator must remember for its protocol with the agents. Users
	// need not read it: the other fields say all that follows from it.
	// +optional
	Protocol ProtocolState `json:"protocol,omitzero"`
}

// ProtocolState is what the operator must remember for its protocol with the agents. Users need
// not read it.
type ProtocolState struct {
	// memberList is the newest member list that the operator has published.
	// +required
	MemberList *MemberList `json:"memberList"`

	// document is the newest document that the operator has published. It is written
	// together with the member list in it, and before any agent has it.
	// +required
	Document *PublishedDocument `json:"document"`

	// lossReportedAt is the time at which the operator reported the loss of the last
	// coordinator in an Event, because no other member followed within the suspicion
	// timeout. It is set only while the group has no coordinator.
	// +optional
	LossReportedAt *metav1.Time `json:"lossReportedAt,omitempty"`
}

// PublishedDocument identifies a document: the settings and the member list of the group, as
// agents receive them.
//
// +kubebuilder:validation:XValidation:rule="self.revision != oldSelf.revision || self.digest == oldSelf.digest",message="digest cannot change under the same revision: increase revision",fieldPath=".digest"
type PublishedDocument struct {
	// revision increases from one document to the next. It is a time in milliseconds, or
	// slightly above one.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// digest is the SHA-256 of the document.
	// +required
	// +kubebuilder:validation:MinLength=64
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest"`
}

// Coordinator is the elected process. The fencing token is not part of the status: only
// the agent in the coordinator's pod can tell whether the token is still valid.
type Coordinator struct {
	// pod is the name of its pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// priority is the priority of the member.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16383
	Priority int32 `json:"priority"`

	// term is the term in which it was elected.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=70368744177663
	Term int64 `json:"term"`

	// electedAt is the time at which its tenure began, on the clock of the reporting
	// agent.
	// +required
	ElectedAt metav1.MicroTime `json:"electedAt"`
}

// Tenure is the time during which a member was the coordinator.
type Tenure struct {
	// number counts the tenures of the group, starting with 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`

	// pod is the name of the coordinator's pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// term is the term in which it was elected.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=70368744177663
	Term int64 `json:"term"`

	// from is the time at which the tenure began, on the clock of the reporting agent.
	// +required
	From metav1.MicroTime `json:"from"`

	// until is the time at which the tenure ended. It is not set while the tenure lasts.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`

	// endReason is why the tenure ended, according to the agents, such as Crash, SessionClosed
	// or Preempted. It is not set while the tenure lasts.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	EndReason EndReason `json:"endReason,omitempty"`

	// endedBy is the user who requested the step-down that ended the tenure. It is not set if the
	// API server doesn't know them: the application requested it, or they may not change the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	EndedBy string `json:"endedBy,omitempty"`

	// gapMicros is the time without a coordinator before this tenure, in microseconds, as
	// an agent measured it or, if none did, as the operator has seen it. If the last
	// coordinator was silent, it includes the time since its last message. It is not set
	// if neither knows.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GapMicros *int64 `json:"gapMicros,omitempty"`
}

// EndReason is the reason for the end of a tenure. It is not an enum in the schema, so
// that a newer operator can add reasons to a status that an older one reads.
type EndReason string

// The reasons for the end of a tenure.
const (
	// Crash: the process of the coordinator's agent ended.
	EndCrash EndReason = "Crash"
	// Silence: the other agents received no heartbeat for the suspicion timeout.
	EndSilence EndReason = "Silence"
	// Lapse: the coordinator could not renew its lease.
	EndLapse EndReason = "Lapse"
	// SessionClosed: the coordinator's application closed its session, or ended.
	EndSessionClosed EndReason = "SessionClosed"
	// NotRenewed: the session of the coordinator's application was not renewed in time: the
	// application or the agent hangs, or was paused.
	EndNotRenewed EndReason = "NotRenewed"
	// ProbeFailed: the probe of the coordinator's application failed.
	EndProbeFailed EndReason = "ProbeFailed"
	// StepDown: the coordinator resigned because a user requested it.
	EndStepDown EndReason = "StepDown"
	// Preempted: the coordinator handed over to a member with a higher priority.
	EndPreempted EndReason = "Preempted"
	// PodDeleted: the pod of the coordinator was deleted.
	EndPodDeleted EndReason = "PodDeleted"
	// AgentStopped: the coordinator's agent was told to end, although its pod was not
	// deleted.
	EndAgentStopped EndReason = "AgentStopped"
	// Evacuated: the operator excluded the coordinator, because its node was cordoned or
	// evacuated.
	EndEvacuated EndReason = "Evacuated"
	// HandOver: the coordinator resigned, for another reason or one that is not known.
	EndHandOver EndReason = "HandOver"
	// Membership: the member list changed.
	EndMembership EndReason = "Membership"
	// Unknown: no agent that is connected to the operator has observed the end.
	EndUnknown EndReason = "Unknown"
)

// Process is a row of the process status table.
type Process struct {
	// pod is the name of its pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// priority is the priority of the member.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16383
	Priority int32 `json:"priority"`

	// status is the status that the agents report. It is Unknown if no agent reports
	// one, or if the reports differ.
	// +required
	Status ProcessStatus `json:"status"`

	// reason is a one-word reason for the status, if there is more to report.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason ProcessReason `json:"reason,omitempty"`

	// message explains the reason, and how to resolve it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`

	// since is the time at which status last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// agentVersion is the version of the agent that last connected.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AgentVersion string `json:"agentVersion,omitempty"`

	// node is the name of the node on which the pod is. It is not set while there is no
	// pod with this name, or the pod has not been scheduled.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// zone is the label topology.kubernetes.io/zone of the node. It is not set if the node
	// does not have the label.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
}

// ProcessStatus is the status of a process. It is not an enum in the schema, for the
// reason that ProcessReason isn't.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
type ProcessStatus string

// The statuses.
const (
	// Coordinator: the process is the coordinator.
	ProcessCoordinator ProcessStatus = "Coordinator"
	// Normal: the process is up, and is not the coordinator.
	ProcessNormal ProcessStatus = "Normal"
	// Crashed: the other agents report that the process has crashed.
	ProcessCrashed ProcessStatus = "Crashed"
	// Unknown: no agent reports the process, or the reports differ.
	ProcessUnknown ProcessStatus = "Unknown"
)

// ProcessReason is the reason for a row's status. It is not an enum in the schema, so
// that a newer operator can add reasons to a status that an older one reads.
type ProcessReason string

// The reasons.
const (
	// PodMissing: there is no pod with this name and the label conclave.dev/agent: enabled.
	ProcessPodMissing ProcessReason = "PodMissing"
	// PodPending: the pod is not running yet.
	ProcessPodPending ProcessReason = "PodPending"
	// PodTerminating: the pod is being deleted.
	ProcessPodTerminating ProcessReason = "PodTerminating"
	// NoAgent: the pod runs without an agent.
	ProcessNoAgent ProcessReason = "NoAgent"
	// NotInGroup: the agent is joining the group, or the pod's annotation does not list
	// the group, or did not list it when the pod was created.
	ProcessNotInGroup ProcessReason = "NotInGroup"
	// Unreachable: the operator cannot reach the pod's agent. The status is what the
	// other agents report.
	ProcessUnreachable ProcessReason = "Unreachable"
	// NoCertificate: the agent does not listen, and the operator has refused it a certificate. The message has the reason.
	ProcessNoCertificate ProcessReason = "NoCertificate"
	// Disputed: the agents report different statuses.
	ProcessDisputed ProcessReason = "Disputed"
	// NotEligible: the process is up, but its application or the operator makes it
	// ineligible.
	ProcessNotEligible ProcessReason = "NotEligible"
	// HeldBack: the process is up, but its last tenures were short. So it does not take over
	// from a healthy coordinator for some minutes.
	ProcessHeldBack ProcessReason = "HeldBack"
	// HandOversPaused: the process is up and above the coordinator, but coordinators lost their leases twice in
	// a short time. So no process takes over from a healthy coordinator for a minute or two.
	ProcessHandOversPaused ProcessReason = "HandOversPaused"
)
