// Package groupstatus derives the status of a group from its agents' reports, and what follows from the status: the
// role labels of pods, Events, and commands for agents. It is pure.
//
// The coordinator and the process status table are what the agents report. The operator never derives them from the
// pods. A process that no agent reports is Unknown; its pod only explains the reason.
//
//	agents -> reports -> coordinator -> rows -> conditions -> events
//	                     \-> roles      \-> eligibility
//
// The status is the only state. Until the operator has contacted an agent, the evaluation
// retains what the status says about it, so a restart of the operator changes nothing.
package groupstatus

import (
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// Result is the result of an evaluation.
type Result struct {
	// Status is the complete status. It equals the current one if nothing has changed.
	Status v1.ElectionGroupStatus
	// Roles has the values of the role label by pod; "" means that the label must be removed.
	Roles map[string]string
	// Eligibility has the pods whose agents must be made eligible (true) or excluded
	// (false), because their reports differ from that.
	Eligibility map[string]bool
	// Leave lists the pods whose agents must leave the group that they report, which the UID in the report identifies.
	Leave  []string
	Events []Event
	// Coordinator is the pod that the Service points at, or "".
	Coordinator string
	// Disagreement is why the agents don't agree: CoordinatorsDiffer, ListsDiffer or SettingsDiffer; "" if they do.
	Disagreement v1.Reason
	// RequeueAt is the time of the next evaluation if no fact changes before; zero if none is needed.
	RequeueAt time.Time
}

// Evaluate derives the status of a group, and what follows from it, if the group has the list of a plan.
func Evaluate(f *facts.Facts, plan *membership.Plan) Result {
	e := newEvaluation(f, plan)
	status := f.Group.Status.DeepCopy()
	status.ObservedGeneration = f.Group.Generation
	status.Protocol.MemberList = e.List
	status.Term, status.Coordinator = e.currentCoordinator()
	e.coordinator = status.Coordinator
	if e.coordinator == nil && f.Group.Status.Coordinator == nil {
		e.lossReportedAt = status.Protocol.LossReportedAt
	}
	e.buildTable()
	status.Processes = e.rows
	status.Members, status.ReadyMembers = new(int32(len(e.rows))), new(int32(len(e.rows)-len(e.down())))
	requeueAt := e.setConditions(&status.Conditions)
	status.Protocol.LossReportedAt = e.lossReportedAt
	e.updateHistory(status)
	requeueAt = facts.Earliest(requeueAt, e.evacuationEnd())
	result := Result{
		Status: *status, Roles: e.roles(), Eligibility: e.eligibility(), Leave: e.podsToLeave(), RequeueAt: requeueAt,
		Events: Events(&f.Group.Status, status), Disagreement: e.disagrees,
	}
	if c := e.coordinator; c != nil && e.podExists(c.Pod) {
		result.Coordinator = c.Pod
	}
	return result
}
