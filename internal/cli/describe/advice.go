package describe

import (
	"fmt"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// advice says what to do about a condition of this reason, or "" if there is
// nothing to be done. Reasons of an operator newer than this program have none.
func advice(g *v1.ElectionGroup, reason v1.Reason) string { //nolint:funlen // a table of sentences
	pods := func(what string) string { return fmt.Sprintf("kubectl get pods %s %s", in(g), what) }
	opted := "-l " + v1.LabelAgent + "=" + v1.AgentEnabled
	switch reason {
	case v1.ReasonHealthy, v1.ReasonElected, v1.ReasonAgreed, v1.ReasonConnected:
		return ""
	case v1.ReasonNoReports:
		return "It takes pods that run with an agent: " + pods(opted) + ". If they do, look at the operator: kubectl logs " +
			"deployment/conclave-manager -n " + operatorNamespace
	case v1.ReasonNoMembers:
		return fmt.Sprintf("A pod takes part if its labels match the selector, it has the label %s: %s, and its annotation %s names %s: %s",
			v1.LabelAgent, v1.AgentEnabled, v1.AnnotationGroups, g.Name, pods("--show-labels"))
	case v1.ReasonInvalidMembers:
		return "Mend what the message names; one member at least needs a priority above 0."
	case v1.ReasonTooManyMembers:
		return fmt.Sprintf("Have the selector find %d pods at most.", v1.MaxMembers)
	case v1.ReasonEarlierGroup:
		return "A coordinator of the group before may still be at work. If its agents don't leave, see why: kubectl logs POD -c " +
			v1.AgentContainer + " " + in(g)
	case v1.ReasonStatusBehind:
		return "The agents go on with their list. Keep the manifest, kubectl delete electiongroup " + g.Name + " " + in(g) + ", and apply it again: the group " +
			"begins anew when its agents have left it."
	case v1.ReasonConfigMapConflict:
		name := control.ConfigMapName(g.Name)
		return fmt.Sprintf("See whose it is: kubectl get configmap %s %s -o yaml. If nobody needs it, kubectl delete configmap %[1]s %[2]s", name, in(g))
	case v1.ReasonNoFailover:
		return noFailover(g)
	case v1.ReasonNoCoordinator, v1.ReasonElecting:
		return "An election takes well below a second. If this lasts, see what hinders it: " + explaining(g)
	case v1.ReasonDisagreement, v1.ReasonCoordinatorsDiffer:
		return disagreement(g)
	case v1.ReasonListsDiffer:
		return "Agents with different lists don't listen to each other. The operator gives them the newest one; if this lasts, delete the pods " +
			"with the older list, one after the other."
	case v1.ReasonSettingsDiffer:
		return "Agents take over a change one after the other. If this lasts, look at those that the message names: kubectl logs POD -c " +
			v1.AgentContainer + " " + in(g)
	case v1.ReasonMembersDown:
		return "The others go on. Look at those that are down: " + describe(g)
	case v1.ReasonAdopting:
		return "Until a majority of the list before has adopted the new one, a coordinator needs a majority of both. It takes pods of the list " +
			"before that run, or that are gone for good."
	case v1.ReasonWriteFailed:
		return "The operator tries again every few seconds. See what is in its way: a quota, a policy or a webhook of the cluster's, or a ConfigMap " +
			"that is immutable; delete that, and it is made anew."
	case v1.ReasonServiceConflict:
		return serviceTaken(g)
	case v1.ReasonNoMajority:
		return "Nobody may lead before a majority of the members is connected. Bring pods back: " + describe(g)
	case v1.ReasonNoEligibleMember:
		return "Applications keep their agents from standing: by no open session, by a failing probe, or by priority 0. Ask one: kubectl logs POD -c " +
			v1.AgentContainer + " " + in(g)
	case v1.ReasonUnreachable:
		return fmt.Sprintf("The agents elect without the operator; only this status is in doubt. Does a NetworkPolicy keep the operator from port %d?", operatorPort)
	case v1.ReasonPodsMissing:
		return "The group declares members that have no pods: make them, or take them off spec.members."
	case v1.ReasonNoAgent:
		return fmt.Sprintf("Pods get the agent when they are made, if they have the label %s: %s. Make these anew: kubectl rollout restart "+
			"of what they belong to, or kubectl delete pod %s POD", v1.LabelAgent, v1.AgentEnabled, in(g))
	}
	return ""
}

// noFailover says why nobody could take over.
func noFailover(g *v1.ElectionGroup) string {
	f := factsOf(g)
	switch {
	case f.members == 2 && f.grants:
		return "Two members have a majority of two: when either is lost, nobody leads. Add a third one; with priority 0, it only votes."
	case f.members > 1:
		return "Give a second member a priority above 0."
	}
	return "Add members: three survive the loss of one."
}

func disagreement(g *v1.ElectionGroup) string {
	if g.Spec.Safety.Mode == v1.Available {
		return "In the mode Available, each side of a divided network has its own coordinator. It ends when they reach each other again."
	}
	return "At most one of them may act: the others' fencing tokens are older, or their leases over. If this lasts, see what each agent says: " +
		"kubectl logs POD -c " + v1.AgentContainer + " " + in(g)
}

func serviceTaken(g *v1.ElectionGroup) string {
	if g.Spec.Service == nil {
		return ""
	}
	return fmt.Sprintf("Choose another name in spec.service, or delete the other one: kubectl get service,endpointslice %s -o yaml", in(g))
}

// describe is the command that tells about a pod that is down.
func describe(g *v1.ElectionGroup) string {
	down := slices.IndexFunc(g.Status.Processes, func(p v1.Process) bool { return !up(&p) })
	if down < 0 {
		return "kubectl get pods " + in(g)
	}
	return "kubectl describe pod " + g.Status.Processes[down].Pod + " " + in(g)
}

func explaining(g *v1.ElectionGroup) string {
	return "kubectl conclave explain " + g.Name + " " + in(g)
}
