package describe

import (
	"fmt"
	"slices"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// advice returns how to resolve a condition with this reason, or "" if nothing needs to
// be done. Reasons that a newer operator has added have no advice.
func advice(g *v1.ElectionGroup, reason v1.Reason) string { //nolint:funlen // a table of sentences
	pods := func(options string) string { return fmt.Sprintf("kubectl get pods %s %s", namespaceFlag(g), options) }
	injected := "-l " + v1.LabelAgent + "=" + v1.AgentEnabled
	logs := "kubectl logs POD -c " + v1.AgentContainer + " " + namespaceFlag(g)
	switch reason {
	case v1.ReasonHealthy, v1.ReasonSettled, v1.ReasonElected, v1.ReasonConnected:
		return ""
	case v1.ReasonNoReports:
		return "Check that there are running pods with an agent: " + pods(injected) +
			". If there are, see the operator's log. Its pods: " +
			operatorPods
	case v1.ReasonNoMembers:
		return fmt.Sprintf("A pod needs labels that match the selector, and the label %s: %s. If it has the annotation %s, "+
			"that must list the group %s. See the labels: %s",
			v1.LabelAgent, v1.AgentEnabled, v1.AnnotationGroups, g.Name, pods("--show-labels"))
	case v1.ReasonInvalidMembers:
		return "Correct the names or priorities in the message. At least one member needs a priority above 0."
	case v1.ReasonTooManyGroups:
		return "The flag --max-groups-per-namespace of the operator sets the maximum. The group begins within half a " +
			"minute after another one was deleted."
	case v1.ReasonTooManyMembers:
		return fmt.Sprintf("Change the selector so that it matches at most %d pods.", v1.MaxMembers)
	case v1.ReasonEarlierGroup:
		return "The earlier group may still have a coordinator. If its agents do not leave it, see their logs: " + logs
	case v1.ReasonStatusBehind:
		return "The agents continue with their list. Save the manifest, run kubectl delete electiongroup " +
			g.Name + " " + namespaceFlag(g) +
			", and apply the manifest again: the new group begins when the agents have left the old one."
	case v1.ReasonWaitingForMembers:
		return "Otherwise the coordinator could lose its majority. The list changes as soon as enough agents are connected " +
			"and part of the group. See why one " +
			"is not: " + pods("POD") + ", and " + logs
	case v1.ReasonNoFailover:
		return noFailover(g)
	case v1.ReasonElecting:
		return "An election takes less than a second. If the problem persists, see the reason: kubectl conclave explain " +
			g.Name + " " + namespaceFlag(g)
	case v1.ReasonCoordinatorsDiffer:
		if g.Spec.Safety.Mode == v1.Available {
			return "In Available mode, each side of a network partition has its own coordinator. This ends when the " +
				"sides are connected again."
		}
		return "At most one of them may act: the others have older fencing tokens, or expired leases. If the problem " +
			"persists, see the logs of each agent: " + logs
	case v1.ReasonListsDiffer:
		return "Agents with different member lists ignore each other. The operator sends them the newest list. If the " +
			"problem persists, delete the pods " +
			"with the older list, one after the other."
	case v1.ReasonSettingsDiffer:
		return "Agents apply a change one after the other. If the problem persists, see the logs of the " +
			"pods in the message: " + logs
	case v1.ReasonMembersDown:
		if g.Status.Coordinator == nil {
			return "See why a member is down: " + describeDown(g)
		}
		return "The other members continue. See why a member is down: " + describeDown(g)
	case v1.ReasonAdopting:
		return "Until a majority of the previous list has adopted the new one, a coordinator needs a majority of both. " +
			"Members of the previous list " +
			"adopt it when they run, and do not count when their pods no longer exist."
	case v1.ReasonWriteFailed:
		return "The operator retries every few seconds. Check for a quota, an admission policy or " +
			"webhook, or a missing permission."
	case v1.ReasonCAMissing:
		return "Agents trust only the CA in this Secret. Restore the Secret from a backup, or start with a new CA as " +
			"docs/operate.md describes."
	case v1.ReasonServiceConflict:
		return serviceConflict(g)
	case v1.ReasonServicesForbidden:
		return "The agents elect without the Service. With Helm, services.enabled=true grants the permission."
	case v1.ReasonPortMissing:
		return "The Service has no endpoint for that port."
	case v1.ReasonNoMajority:
		return "There is no coordinator until a majority of the members is connected. See why a member is down: " +
			describeDown(g)
	case v1.ReasonNoEligibleMember:
		return "A member is ineligible if it has priority 0, if its application has no open session or fails its probe, or " +
			"if the operator has excluded it. " +
			"See the logs of an agent: " + logs
	case v1.ReasonMembersTooSlow:
		return "A coordinator whose lease ends before the members can renew it would lead for a " +
			"moment, again and again. So " +
			"none leads. Find out what delays agents, such as a CPU limit, a busy node or the network."
	case v1.ReasonUnreachable:
		return unreachable(g)
	case v1.ReasonStopUnconfirmed:
		return "Make sure that the containers of these pods do not run any more, and run the command in the " +
			"message. If their node is off, " +
			"it is enough to taint it: kubectl taint node NODE " + "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	case v1.ReasonPodsMissing:
		if g.Spec.Selector != nil {
			return "Scale the workload of the pods up. Members without pods leave the list, but only while " +
				"enough agents are connected."
		}
		return "Create the pods, or remove them from spec.members. A pod without the label must be created again with it."
	case v1.ReasonNoAgent:
		return fmt.Sprintf(
			"The agent is injected when a pod with the label %s: %s is created. Recreate the pods: kubectl rollout restart "+
				"for their workload, or kubectl delete pod %s POD", v1.LabelAgent, v1.AgentEnabled, namespaceFlag(g))
	}
	return ""
}

// unreachable distinguishes agents that only the operator can't reach.
func unreachable(g *v1.ElectionGroup) string {
	only := func(p v1.Process) bool { return p.Reason == v1.ProcessUnreachable && p.Status != v1.ProcessCrashed }
	all := func(p v1.Process) bool {
		return p.Reason == v1.ProcessUnreachable || p.Reason == v1.ProcessPodTerminating && p.Status == v1.ProcessCrashed
	}
	pending := func(p v1.Process) bool { return p.Reason == v1.ProcessPodPending }
	refused := func(p v1.Process) bool { return p.Reason == v1.ProcessNoCertificate }
	has := func(match func(v1.Process) bool) bool { return slices.ContainsFunc(g.Status.Processes, match) }
	switch {
	case !has(all) && has(refused):
		return "The rows say why the operator has refused a certificate. The agents ask again within 30 s."
	case !has(all) && has(pending):
		return "See why they do not start: kubectl describe pods " + namespaceFlag(g)
	case has(all) && !has(only):
		return "The other agents cannot reach them, either: they have ended, or their nodes are unreachable."
	}
	return fmt.Sprintf("The agents elect without the operator; only this status may be outdated. Check for a "+
		"NetworkPolicy that blocks the operator on port %d.",
		control.OperatorPort)
}

func noFailover(g *v1.ElectionGroup) string {
	a := analyze(g)
	switch {
	case g.Spec.Witness == v1.WitnessManaged:
		return "The operator needs witnesses on three nodes: see docs/configure.md#a-managed-witness."
	case a.members == 2 && a.needsMajority:
		return "The majority of two members is two: if either fails, there is no coordinator. Add a third member; with " +
			"priority 0, it only votes."
	case a.members > 1:
		return "Give a second member a priority above 0."
	}
	return "Add members: three members tolerate one failure."
}

func serviceConflict(g *v1.ElectionGroup) string {
	if g.Spec.Service == nil {
		return ""
	}
	return fmt.Sprintf(
		"Change spec.service.name, or delete the other object: kubectl get service,endpointslice %s -o yaml",
		namespaceFlag(g))
}

// describeDown returns a command that shows why a member is down. If all of those are on one node,
// the node is more likely to be the reason than the pods, which the API server may still show as ready.
func describeDown(g *v1.ElectionGroup) string {
	if _, node, _ := shared(g); node != "" {
		return "kubectl describe node " + node
	}
	down := slices.IndexFunc(g.Status.Processes, func(p v1.Process) bool { return !isUp(&p) })
	if down < 0 {
		return "kubectl get pods " + namespaceFlag(g)
	}
	return "kubectl describe pod " + g.Status.Processes[down].Pod + " " + namespaceFlag(g)
}
