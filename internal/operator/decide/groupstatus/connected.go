package groupstatus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// connectedCondition returns the condition AgentsConnected. Problems that users have to solve first take precedence.
func (e *evaluation) connectedCondition() finding {
	pods := map[v1.ProcessReason][]string{}
	selected := membership.Selects(e.Group)
	var refused finding // for a pod without a row
	for _, name := range slices.Sorted(maps.Keys(e.Pods)) {
		if pod := e.Pods[name]; !e.inList(name) && selected(pod) && pod.DeletionTimestamp == nil {
			row := v1.Process{Pod: name}
			reason, message := e.explain(&row, liveness{})
			if reason == v1.ProcessNoCertificate {
				refused = isFalse(v1.ReasonUnreachable, fmt.Sprintf("The operator cannot reach the agent of %s: %s", name, message))
				continue
			}
			pods[reason] = append(pods[reason], name)
		}
	}
	for i := range e.rows {
		row := &e.rows[i]
		reason := row.Reason
		switch connected := e.Agents[row.Pod].Connected; {
		case reason == v1.ProcessPodTerminating && !connected:
			reason = v1.ProcessUnreachable
		case reason == v1.ProcessPodPending && connected:
			continue // only its application hasn't started
		}
		pods[reason] = append(pods[reason], row.Pod)
	}
	return cmp.Or(e.noMembers(), noAgent(pods), e.podsMissing(pods[v1.ProcessPodMissing]),
		unreachableAgents(pods), refused, e.notContacted(),
		isTrue(v1.ReasonConnected, "The agent of each member is connected"))
}

func noAgent(pods map[v1.ProcessReason][]string) finding {
	if names := pods[v1.ProcessNoAgent]; len(names) > 0 {
		return isFalse(v1.ReasonNoAgent, fmt.Sprintf("%s %s without an agent: recreate the pods",
			membership.Abbreviate(names), membership.Plural(len(names), "runs", "run")))
	}
	if names := pods[v1.ProcessNotInGroup]; len(names) > 0 {
		return isFalse(v1.ReasonNoAgent,
			fmt.Sprintf("%s %s with an agent that is not part of the group: see status.processes",
				membership.Abbreviate(names), membership.Plural(len(names), "runs", "run")))
	}
	return finding{}
}

const noPods = "Members have no pods with the label " + v1.LabelAgent + ": " + v1.AgentEnabled

func (e *evaluation) podsMissing(names []string) finding {
	switch {
	case len(names) == 0:
		return finding{}
	case e.Group.Spec.Selector != nil:
		return isFalse(v1.ReasonPodsMissing, fmt.Sprintf("%s: %s", noPods, membership.Abbreviate(names)))
	}
	return isFalse(v1.ReasonPodsMissing, fmt.Sprintf("%s: create %s, or remove %s from spec.members",
		noPods, membership.Abbreviate(names), membership.Plural(len(names), "it", "them")))
}

func unreachableAgents(pods map[v1.ProcessReason][]string) finding {
	if names := append(pods[v1.ProcessUnreachable], pods[v1.ProcessNoCertificate]...); len(names) > 0 {
		return isFalse(v1.ReasonUnreachable, fmt.Sprintf("The operator cannot reach the %s of %s: see status.processes",
			membership.Plural(len(names), "agent", "agents"), membership.Abbreviate(names)))
	}
	if names := pods[v1.ProcessPodPending]; len(names) > 0 {
		return isFalse(v1.ReasonUnreachable, fmt.Sprintf("Pods are not running yet: %s", membership.Abbreviate(names)))
	}
	return finding{}
}

// notContacted returns Unknown if no agent is known to be unreachable, but the operator
// has not contacted all agents for the first time.
func (e *evaluation) notContacted() finding {
	if e.List == nil {
		return e.noReports()
	}
	if e.pendingContacts > 0 && e.oldCondition(v1.ConditionAgentsConnected) == nil {
		return isUnknown("The operator has not contacted every agent yet")
	}
	return finding{}
}
