// Package groupstatus derives the status of a group from its agents' reports, and what
// follows from the status: the role labels of pods, Events, and commands for agents.
// It is pure: package controllers gathers the Facts and applies the Result.
//
// The coordinator and the process status table are what the agents report. The operator
// never derives them from the pods. A process that no agent reports is Unknown; its pod
// only explains the reason.
//
//	AgentState -> reports -> coordinator -> rows -> conditions -> events
//	                         \-> roles      \-> eligibility
//
// The status is the only state. Until the operator has contacted an agent, the evaluation
// retains what the status says about it, so a restart of the operator changes nothing.
package groupstatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// AgentState is the state of a pod's agent as the operator knows it. If it has neither
// a connection nor a Problem, the operator has not contacted the agent yet. The same
// applies to a pod without an entry in Facts.Agents.
type AgentState struct {
	// Connected means that the stream of the agent is open and up to date.
	Connected bool
	// NotInGroup means that the agent cannot participate in the group, because its pod
	// did not list the group when it was created.
	NotInGroup bool
	// Problem is the reason why the agent is not connected.
	Problem string
	// Version is that of the agent, while it is connected.
	Version string
	// Report is the agent's last report for a group of this name, or nil.
	Report *control.Report
}

// NoCertificate begins the Problem of an agent that got no certificate from the operator.
const NoCertificate = "The agent has no certificate: "

// Facts is the input of an evaluation.
type Facts struct {
	Group *v1.ElectionGroup
	// List is the present member list. The problems and StatusBehind are results of membership.MakePlan.
	List                    *v1.MemberList
	Problem, ServiceProblem *membership.Problem
	StatusBehind            bool
	// PublishError is the error of the last write before a document, and RoutingError that
	// of the last write of the Service, the EndpointSlice or a role label; "" if none.
	PublishError, RoutingError string
	// Pods has pods by name: members, selected pods, and pods with the group's role
	// label. Nodes has their nodes by name.
	Pods  map[string]*corev1.Pod
	Nodes map[string]*corev1.Node
	// Deleted has when the deletion of pods was requested, by name, also of pods whose objects have just gone.
	Deleted map[string]time.Time
	// Unlisted are the pods that membership.Unlisted has found.
	Unlisted []string
	// Agents has the agents by the names of their pods: those of members, of selected
	// pods, and of all other pods that report the group.
	Agents map[string]AgentState
	Now    time.Time
}

// Result is the result of an evaluation.
type Result struct {
	// Status is the complete status. It equals the current one if nothing has changed.
	Status v1.ElectionGroupStatus
	// Roles has the values of the role label by pod; "" means that the label must be removed.
	Roles map[string]string
	// Eligibility has the pods whose agents must be made eligible (true) or excluded
	// (false), because their reports differ from that.
	Eligibility map[string]bool
	// Leave lists the pods whose agents must leave the group that they report, which
	// the UID in the report identifies.
	Leave  []string
	Events []Event
	// Coordinator is the pod that the Service points at, or "".
	Coordinator string
	// Disagreement is why the agents don't agree: CoordinatorsDiffer, ListsDiffer or SettingsDiffer; "" if they do.
	Disagreement v1.Reason
	// RequeueAt is the time of the next evaluation if no fact changes before; zero if
	// none is needed.
	RequeueAt time.Time
}

// Evaluate derives the status of a group, and what follows from it.
func Evaluate(f Facts) Result {
	e := newEvaluation(f)
	status := f.Group.Status.DeepCopy()
	status.ObservedGeneration = f.Group.Generation
	status.Protocol.MemberList = f.List
	status.Term, status.Coordinator = e.currentCoordinator()
	e.coordinator = status.Coordinator
	if e.coordinator == nil && f.Group.Status.Coordinator == nil {
		e.lossReportedAt = status.Protocol.LossReportedAt
	}
	e.buildTable()
	status.Processes = e.rows
	status.Members, status.ReadyMembers = new(int32(len(e.rows))), new(int32(e.countUp()))
	requeueAt := e.setConditions(&status.Conditions)
	status.Protocol.LossReportedAt = e.lossReportedAt
	e.updateHistory(status)
	requeueAt = earliest(requeueAt, e.evacuationEnd())
	result := Result{
		Status: *status, Roles: e.roles(), Eligibility: e.eligibility(), Leave: e.podsToLeave(), RequeueAt: requeueAt,
		Events: Events(&f.Group.Status, status), Disagreement: e.disagrees,
	}
	if c := e.coordinator; c != nil && e.podExists(c.Pod) {
		result.Coordinator = c.Pod
	}
	return result
}
