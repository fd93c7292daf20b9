package groupstatus

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// connected is the condition AgentsConnected. Its reasons are in the order in
// which somebody has to do something.
func (h *evaluation) connectedCondition() finding {
	if h.List == nil && h.Problem != nil {
		return h.noMembers()
	}
	by := map[v1.ProcessReason][]string{}
	selected := membership.Selects(h.Group)
	for name, pod := range h.Pods {
		if !h.inList(name) && selected(pod) && pod.DeletionTimestamp == nil {
			row := v1.Process{Pod: name}
			reason, _ := h.explainRow(&row, liveness{})
			by[reason] = append(by[reason], name)
		}
	}
	for i := range h.rows {
		row := &h.rows[i]
		reason := row.Reason
		if reason == v1.ProcessPodTerminating && !h.Agents[row.Pod].Connected {
			reason = v1.ProcessUnreachable
		}
		by[reason] = append(by[reason], row.Pod)
	}
	return firstFinding(constant(noAgent(by, h.Group.Name)), constant(h.podsMissing(by[v1.ProcessPodMissing])), constant(unreachableAgents(by)), h.notContacted,
		constant(isTrue(v1.ReasonConnected, "the agent of each member is heard")))
}

func noAgent(by map[v1.ProcessReason][]string, group string) finding {
	if lack := by[v1.ProcessNoAgent]; len(lack) > 0 {
		return isFalse(v1.ReasonNoAgent, fmt.Sprintf("%s without an agent: put the label %s: %s and the annotation %s: %s into the template, "+
			"and have the pods made anew", runVerb(lack), v1.LabelAgent, v1.AgentEnabled, v1.AnnotationGroups, group))
	}
	if lack := by[v1.ProcessNotInGroup]; len(lack) > 0 {
		return isFalse(v1.ReasonNoAgent, fmt.Sprintf("%s with an agent that takes no part in the group: put the annotation %s: %s into the template, "+
			"and have the pods made anew", runVerb(lack), v1.AnnotationGroups, group))
	}
	return finding{}
}

func runVerb(pods []string) string {
	if len(pods) == 1 {
		return pods[0] + " runs"
	}
	return membership.Abbreviate(pods) + " run"
}

func (h *evaluation) podsMissing(names []string) finding {
	switch {
	case len(names) == 0:
		return finding{}
	case h.Group.Spec.Selector != nil:
		return isFalse(v1.ReasonPodsMissing, fmt.Sprintf("members have no pods: %s", membership.Abbreviate(names)))
	}
	return isFalse(v1.ReasonPodsMissing, fmt.Sprintf("members have no pods: make %s, or take them out of spec.members", membership.Abbreviate(names)))
}

func unreachableAgents(by map[v1.ProcessReason][]string) finding {
	if names := by[v1.ProcessUnreachable]; len(names) > 0 {
		return isFalse(v1.ReasonUnreachable, fmt.Sprintf("the operator doesn't hear the agents of %s: see processes", membership.Abbreviate(names)))
	}
	if names := by[v1.ProcessPodPending]; len(names) > 0 {
		return isFalse(v1.ReasonUnreachable, fmt.Sprintf("pods aren't running yet: %s", membership.Abbreviate(names)))
	}
	return finding{}
}

// silent: nobody is known to be out of reach, but nobody has been asked either.
func (h *evaluation) notContacted() finding {
	if h.List == nil {
		return h.noReports()
	}
	if h.contactPending && h.previousCondition(v1.AgentsConnected) == nil {
		return isUnknown("not every agent has been asked yet")
	}
	return finding{}
}

// ready is the condition Ready: the first thing that is wrong.
func (h *evaluation) readyCondition(elected, agreed, connected finding) finding {
	return firstFinding(
		h.planProblem, h.publishFailed,
		func() finding { return h.withoutReports(connected) },
		func() finding { return h.noCoordinator(elected) },
		func() finding { return disagreement(agreed) },
		h.membersDown, h.adopting, h.serviceConflict, h.routingFailed, h.noFailover,
		constant(isTrue(v1.ReasonHealthy, "all is well")),
	)
}

func (h *evaluation) planProblem() finding {
	if h.Problem == nil {
		return finding{}
	}
	return isFalse(h.Problem.Reason, h.Problem.Message)
}

func (h *evaluation) publishFailed() finding {
	if h.PublishError == "" {
		return finding{}
	}
	return isFalse(v1.ReasonWriteFailed, "agents go on with what they have: the operator can't "+h.PublishError)
}

func (h *evaluation) withoutReports(connected finding) finding {
	found := h.noReports()
	if found.reason != "" && connected.status == metav1.ConditionFalse {
		found.message = connected.message
	}
	return found
}

func (h *evaluation) noCoordinator(elected finding) finding {
	if h.coordinator != nil {
		return finding{}
	}
	return isFalse(v1.ReasonNoCoordinator, "nobody leads: "+elected.message)
}

func disagreement(agreed finding) finding {
	if agreed.status != metav1.ConditionFalse {
		return finding{}
	}
	return isFalse(v1.ReasonDisagreement, agreed.message)
}

func (h *evaluation) membersDown() finding {
	var down []string
	for i := range h.rows {
		if !isUp(&h.rows[i]) {
			down = append(down, h.rows[i].Pod)
		}
	}
	if len(down) == 0 {
		return finding{}
	}
	return isFalse(v1.ReasonMembersDown, fmt.Sprintf("%d of %d members are down: %s", len(down), len(h.rows), membership.Abbreviate(down)))
}

func (h *evaluation) adopting() finding {
	if h.List.State != v1.ListAdopting {
		return finding{}
	}
	return isFalse(v1.ReasonAdopting, fmt.Sprintf("the agents go over to version %d of the list of members", h.List.Version))
}

func (h *evaluation) serviceConflict() finding {
	const taken = "%s %s is somebody else's: give spec.service another name, or delete that %[1]s"
	switch {
	case h.ServiceConflict:
		return isFalse(v1.ReasonServiceConflict, fmt.Sprintf(taken, "Service", h.Group.Spec.Service.Name))
	case h.ServiceHasSelector:
		return isFalse(v1.ReasonServiceConflict, fmt.Sprintf("Service %s has a selector, so it leads to every pod that this finds: "+
			"give spec.service another name, or delete that Service, and it is made without", h.Group.Spec.Service.Name))
	case h.EndpointSliceConflict:
		return isFalse(v1.ReasonServiceConflict, fmt.Sprintf(taken, "EndpointSlice", membership.EndpointSliceName(h.Group)))
	}
	return finding{}
}

func (h *evaluation) routingFailed() finding {
	if h.RoutingError == "" {
		return finding{}
	}
	return isFalse(v1.ReasonWriteFailed, "traffic may go to the wrong pod: the operator can't "+h.RoutingError)
}

func (h *evaluation) noFailover() finding {
	standing := 0
	for _, m := range h.members {
		if m.Priority > 0 {
			standing++
		}
	}
	const two = 2
	switch {
	case len(h.members) == 1:
		return isTrue(v1.ReasonNoFailover, "all is well, but nobody could take over: there is a single member")
	case standing == 1:
		return isTrue(v1.ReasonNoFailover, "all is well, but nobody could take over: a single member has a priority above 0")
	case len(h.members) == two && h.needsMajority():
		return isTrue(v1.ReasonNoFailover, "all is well, but nobody could take over: two members have a majority of two; three would do, "+
			"and one of them can have priority 0")
	}
	return finding{}
}
