package groupstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// blocked returns the most important problem because of which the agents don't agree on a coordinator and on the spec.
func (e *evaluation) blocked(noAgreement, connected finding) finding {
	return cmp.Or(problem(e.Problem), e.publishFailed(), e.withoutReports(connected), noAgreement)
}

// readyCondition returns the condition Ready, which has the most important problem.
func (e *evaluation) readyCondition(blocked finding) finding {
	return cmp.Or(blocked, e.adopting(), e.serviceProblem(), e.routingFailed(), e.minority, e.membersDown(),
		e.noFailover(), isTrue(v1.ReasonHealthy, "The group is healthy"))
}

// unavailable returns the reason why applications cannot rely on the coordinator.
func (e *evaluation) unavailable(noAgreement, connected finding) finding {
	if noAgreement.reason == v1.ReasonSettingsDiffer {
		noAgreement = finding{}
	}
	return cmp.Or(e.noMembers(), e.withoutReports(connected), noAgreement)
}

func (e *evaluation) progressingCondition(disagree finding) finding {
	if found := cmp.Or(problem(e.Problem), e.publishFailed()); found.reason != "" {
		return found // The group doesn't progress until that is resolved.
	}
	switch {
	case e.List == nil:
		return isTrue(v1.ReasonAdopting, "There is no member list yet")
	case e.List.State == v1.ListAdopting:
		return isTrue(v1.ReasonAdopting, e.adopting().message)
	case disagree.reason == v1.ReasonSettingsDiffer:
		return isTrue(disagree.reason, disagree.message)
	}
	return isFalse(v1.ReasonSettled, "The agents use the newest member list and settings")
}

func (e *evaluation) degradedCondition() finding {
	minority := e.minority
	if minority.reason == v1.ReasonSettingsDiffer {
		minority = finding{} // That is progress.
	}
	found := cmp.Or(problem(e.Problem), e.publishFailed(), e.serviceProblem(), e.routingFailed(), minority,
		e.membersDown())
	if found.reason != "" {
		return isTrue(found.reason, found.message)
	}
	if alone := e.noFailover(); alone.reason != "" {
		return isFalse(alone.reason, alone.message)
	}
	return isFalse(v1.ReasonHealthy, "All members are up")
}

func (e *evaluation) publishFailed() finding {
	return writeFailed("Agents keep their current settings", e.Errors.Publish)
}

func (e *evaluation) routingFailed() finding {
	return writeFailed("Traffic may go to the wrong pod", e.Errors.Routing)
}

func writeFailed(effect, why string) finding {
	if why == "" {
		return finding{}
	}
	return isFalse(v1.ReasonWriteFailed, effect+" because a write failed: "+why)
}

func (e *evaluation) withoutReports(connected finding) finding {
	found := e.noReports()
	if found.reason != "" && connected.status == metav1.ConditionFalse {
		found.message = connected.message
	}
	return found
}

func (e *evaluation) membersDown() finding {
	down := e.down()
	if len(down) == 0 {
		return finding{}
	}
	return isTrue(v1.ReasonMembersDown, fmt.Sprintf("%d of %d members %s down: %s",
		len(down), len(e.rows), membership.Plural(len(down), "is", "are"), membership.Abbreviate(down)))
}

func (e *evaluation) adopting() finding {
	if e.List == nil || e.List.State != v1.ListAdopting {
		return finding{}
	}
	message := fmt.Sprintf("The agents are adopting version %d of the member list", e.List.Version)
	if lost := e.votesLost(); len(lost) > 0 {
		message += fmt.Sprintf(". That needs the %s of %s, whose %s not ready: if %s off, set the taint %s",
			membership.Plural(len(lost), "vote", "votes"), membership.Abbreviate(lost),
			membership.Plural(len(lost), "node is", "nodes are"), membership.Plural(len(lost), "it is", "they are"),
			corev1.TaintNodeOutOfService)
	}
	return isFalse(v1.ReasonAdopting, message)
}

// votesLost returns the members of the previous list on nodes that aren't ready, if the others aren't a majority of it.
func (e *evaluation) votesLost() (lost []string) {
	if e.List.Previous == nil || !e.needsMajority() {
		return nil
	}
	all := e.List.Previous.Members
	for _, m := range all {
		pod := e.Pods[m.Pod]
		if pod != nil && !e.Agents[m.Pod].Connected && !membership.NodeReady(e.Nodes[pod.Spec.NodeName]) {
			lost = append(lost, m.Pod)
		}
	}
	if len(all)-len(lost) > len(all)/2 {
		return nil
	}
	return lost
}

// serviceProblem is the reason why the Service doesn't follow the coordinator, other than a failed write.
func (e *evaluation) serviceProblem() finding {
	return cmp.Or(problem(e.ServiceProblem), e.portMissing())
}

// stalled returns the problem that only a user can resolve. What a rollout may be resolving at the moment isn't one,
// such as invalid pods of a group that has members.
func (e *evaluation) stalled() finding {
	lasting := []v1.Reason{v1.ReasonStatusBehind, v1.ReasonTooManyMembers, v1.ReasonTooManyGroups}
	if e.List == nil {
		lasting = append(lasting, v1.ReasonInvalidMembers)
	}
	found := problem(e.Problem)
	if !slices.Contains(lasting, found.reason) {
		found = problem(e.ServiceProblem)
	}
	return found
}

func (e *evaluation) portMissing() finding {
	if e.Group.Spec.Service == nil || e.coordinator == nil || e.Pods[e.coordinator.Pod] == nil {
		return finding{}
	}
	missing := membership.MissingPorts(e.Group, e.Pods[e.coordinator.Pod])
	if len(missing) == 0 {
		return finding{}
	}
	return isFalse(v1.ReasonPortMissing, fmt.Sprintf("No container of pod %s has a port with the name %s: change "+
		"targetPort in spec.service.ports, or add the port to the pod template",
		e.coordinator.Pod, strings.Join(missing, " or ")))
}

func (e *evaluation) noFailover() finding {
	electable := 0
	for _, m := range e.members {
		if m.Priority > 0 {
			electable++
		}
	}
	const healthy = "The group is healthy, but no other member can take over: "
	const two = 2
	switch {
	case membership.LacksWitness(e.Group, e.List):
		return isTrue(v1.ReasonNoFailover, fmt.Sprintf("%stoo few witnesses of the operator are ready, or the namespace has "+
			"%d of their votes already", healthy, membership.MaxWitnessGroupsOfNamespace))
	case membership.SharedNode(e.Facts, e.List) != "":
		return isTrue(v1.ReasonNoFailover, fmt.Sprintf("The group is healthy, and survives the loss of any pod, and of any "+
			"node but %s: there, two of its three votes are, as no other node has a witness",
			membership.SharedNode(e.Facts, e.List)))
	case len(e.members) == 1:
		return isTrue(v1.ReasonNoFailover, healthy+"there is a single member")
	case electable == 1 && len(membership.WitnessesOf(e.List)) == 0: // Or the pod that replaces it can.
		return isTrue(v1.ReasonNoFailover, healthy+"only one member has a priority above 0")
	case len(e.members) == two && e.needsMajority():
		return isTrue(v1.ReasonNoFailover,
			healthy+"the majority of two members is two; set spec.witness, or add a third member, which may have priority 0")
	}
	return finding{}
}
