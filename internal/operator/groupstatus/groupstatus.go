// Package groupstatus decides what a group's status is, from what its agents say, and
// what follows from that: the pods' role labels, events, and what agents must be
// told. Values in, values out; controllers/ gathers the facts and acts.
//
// The coordinator and the process status table are what the agents say, never
// what the operator supposes from the pods. What nobody says anything about is
// Unknown, and the pod only explains why.
//
//	AgentState -> reports -> coordinator -> rows -> conditions -> events
//	                        \-> roles     \-> standing
//
// All that is remembered is in the status. So it makes no difference whether the
// operator has been restarted in between: until an agent has been asked, what
// the status says about it stays.
package groupstatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// AgentState is the agent of one pod as the operator hears it. One with neither a
// stream nor a Problem hasn't been asked yet, like a pod that Facts.AgentState lacks.
type AgentState struct {
	// Connected: its stream is open and current.
	Connected bool
	// NotInGroup: it can't take part in the group, since its pod didn't name it when
	// it was made.
	NotInGroup bool
	// Problem is why it isn't.
	Problem string
	// Report is the last one under this group's name, nil if there is none.
	Report *control.Report
}

// Facts are all that a report is made from.
type Facts struct {
	Group *v1.ElectionGroup
	// List, Problem, StatusBehind and what is taken are those of the plan.
	List                                                       *v1.MemberList
	Problem                                                    *membership.Problem
	StatusBehind                                               bool
	ServiceConflict, ServiceHasSelector, EndpointSliceConflict bool
	// PublishError is what was refused of the operator's when it wrote what agents
	// mount, and RoutingError when it wrote the Service or role labels; "" if nothing was.
	PublishError, RoutingError string
	// Pods, by name, may concern the group: members, selected pods, and those
	// that have its role label. Nodes are theirs, by name.
	Pods  map[string]*corev1.Pod
	Nodes map[string]*corev1.Node
	// AgentState are the agents by the names of their pods: of members, of selected
	// pods, and of all other pods that report the group.
	Agents map[string]AgentState
	Now    time.Time
}

// Result is what the facts amount to.
type Result struct {
	// Status is complete. It equals the present one if nothing has changed.
	Status v1.ElectionGroupStatus
	// Roles are the values of the role label by pod, "" where it has to go.
	Roles map[string]string
	// Eligibility is what an agent has to be told, where it isn't what it reports.
	Eligibility map[string]bool
	// Leave are the pods whose agents must leave the group that they report: the
	// one of the UID in their Report.
	Leave  []string
	Events []Event
	// Coordinator is whose pod the Service leads to, "" if to nobody's.
	Coordinator string
	// RequeueAt is when to look again although nothing has been heard. If it is zero,
	// that isn't needed.
	RequeueAt time.Time
}

// Event is something that has changed, in the terms of a Kubernetes Event.
type Event struct {
	Type, Reason, Note string
	// Key tells it from others of the same reason, and is the same whoever finds
	// the change, from whatever status before it.
	Key string
	// At is when it happened.
	At time.Time
}

// Evaluate makes a report.
func Evaluate(f Facts) Result {
	h := newEvaluation(f)
	status := f.Group.Status.DeepCopy()
	status.ObservedGeneration = f.Group.Generation
	status.MemberList = f.List
	status.Term, status.Coordinator = h.currentCoordinator()
	h.coordinator = status.Coordinator
	h.last = h.lastCoordinator()
	h.buildTable()
	status.Processes = h.rows
	status.Members, status.ReadyMembers = new(int32(len(h.rows))), new(int32(h.countUp()))
	again := h.setConditions(&status.Conditions)
	status.LastCoordinator = h.last
	result := Result{
		Status: *status, Roles: h.roles(), Eligibility: h.eligibility(), Leave: h.podsToLeave(), RequeueAt: again,
		Events: Events(&f.Group.Status, status),
	}
	if c := h.coordinator; c != nil && h.podExists(c.Pod) {
		result.Coordinator = c.Pod
	}
	return result
}
