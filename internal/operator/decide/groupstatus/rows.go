package groupstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// liveness is what the authoritative reports contain about a member: that it is up, that
// it has crashed, both, or neither.
type liveness struct{ up, crashed bool }

// buildTable builds the process status table.
func (e *evaluation) buildTable() {
	old := make(map[string]*v1.Process, len(e.Group.Status.Processes))
	for i := range e.Group.Status.Processes {
		row := &e.Group.Status.Processes[i]
		old[row.Pod] = row
	}
	reports := e.authoritativeReports()
	others := e.livenessOfMembers(reports)
	pause := e.pause()
	for i, m := range e.members {
		row := v1.Process{Pod: m.Pod, Priority: m.Priority}
		was := old[m.Pod]
		row.Status = e.processStatus(m.Pod, others[i])
		if was != nil && e.pendingContacts > 0 && len(reports) == 0 && row.Status != v1.ProcessCoordinator &&
			was.Status != v1.ProcessCoordinator {
			row.Status = was.Status
		}
		row.Reason, row.Message = e.explain(&row, others[i])
		own := e.reportOf[m.Pod]
		if own != nil && own.ShortTenures > 0 && row.Reason == "" && row.Status == v1.ProcessNormal {
			row.Reason, row.Message = v1.ProcessHeldBack, heldBackMessage(own)
		} else if pause > 0 && row.Reason == "" && row.Status == v1.ProcessNormal && m.Priority > e.coordinator.Priority {
			row.Reason, row.Message = v1.ProcessHandOversPaused, pauseMessage(pause)
		}
		if was != nil && e.isContactPending(m.Pod) && was.Status == row.Status {
			row.Reason, row.Message = was.Reason, was.Message
		}
		row.Since = new(inSeconds(e.Now))
		if was != nil && was.Status == row.Status && was.Since != nil {
			row.Since = was.Since
		}
		if row.AgentVersion = e.Agents[m.Pod].Version; row.AgentVersion == "" && was != nil {
			row.AgentVersion = was.AgentVersion // Disconnecting isn't worth a write.
		}
		row.Node, row.Zone = e.place(m.Pod)
		e.rows = append(e.rows, row)
	}
}

// The schema limits the status to names of these lengths, and the API server refuses a status with a
// longer one as a whole.
const maxNodeName, maxZone = 253, 63

// place returns the node of a member's pod and the zone of that node, or "".
func (e *evaluation) place(name string) (node, zone string) {
	pod := e.Pods[name]
	if pod == nil || !isName(pod.Spec.NodeName, maxNodeName) {
		return "", "" // Nothing validates the node that a custom scheduler binds a pod to.
	}
	if found := e.Nodes[pod.Spec.NodeName]; found != nil && isName(found.Labels[corev1.LabelTopologyZone], maxZone) {
		zone = found.Labels[corev1.LabelTopologyZone]
	}
	return pod.Spec.NodeName, zone
}

// isName reports whether a text has only the characters of names and labels. Terminals show it as it is.
func isName(text string, longest int) bool {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}
	return len(text) <= longest && !strings.ContainsFunc(text, strange)
}

// authoritativeReports returns the reports whose tables count. The coordinator's heartbeats contain which processes it
// considers crashed, so its own table takes precedence: the followers' tables may be a moment behind.
func (e *evaluation) authoritativeReports() []*control.Report {
	if e.coordinator == nil {
		return e.reportsNaming("")
	}
	if own, ok := e.reportOf[e.coordinator.Pod]; ok {
		return []*control.Report{own}
	}
	return e.reportsNaming(e.coordinator.Pod)
}

func (e *evaluation) reportsNaming(coordinator string) []*control.Report {
	var all []*control.Report
	for _, r := range e.reports {
		if r.Coordinator == coordinator {
			all = append(all, r)
		}
	}
	return all
}

// livenessOfMembers returns what the reports contain about each member, in the order of
// the members. An agent's row for itself does not count.
func (e *evaluation) livenessOfMembers(reports []*control.Report) []liveness {
	all := make([]liveness, len(e.members))
	for _, r := range reports {
		e.addUsualRows(all, r)
		for i := range r.Processes {
			row := &r.Processes[i]
			at, known := e.index[row.Name]
			switch {
			case !known || row.Name == r.Pod:
			case row.Status == string(v1.ProcessCrashed):
				all[at].crashed = true
			case r.Coordinator != "" || row.Connected:
				// Before the first election, agents report each process as Normal that they have not detected as crashed. That is
				// no evidence, unless they are connected to the process.
				all[at].up = true
			}
		}
	}
	return all
}

// addUsualRows adds what a report leaves out: all other members of the agent's list are up.
func (e *evaluation) addUsualRows(all []liveness, r *control.Report) {
	if !r.OnlyUnusual {
		return
	}
	unusual := make(map[string]bool, len(r.Processes))
	for i := range r.Processes {
		unusual[r.Processes[i].Name] = true
	}
	isPrevious := int64(r.Version) < e.List.Version // Older reports aren't relevant.
	for i, m := range e.members {
		if _, known := e.previous[m.Pod]; (known || !isPrevious) && m.Pod != r.Pod && !unusual[m.Pod] {
			all[i].up = true
		}
	}
}

// processStatus returns the status of a member according to the reports.
func (e *evaluation) processStatus(pod string, others liveness) v1.ProcessStatus {
	own, reports := e.reportOf[pod]
	// If there is a coordinator, an agent without one has just started. The others may not have detected it yet.
	started := reports && e.coordinator != nil && own.Coordinator == ""
	up := others.up && !e.isReplacement(pod) || reports && !(started && others.crashed)
	switch {
	case e.coordinator != nil && e.coordinator.Pod == pod:
		return v1.ProcessCoordinator
	case up && others.crashed:
		return v1.ProcessUnknown
	case up:
		return v1.ProcessNormal
	case others.crashed:
		return v1.ProcessCrashed
	}
	return v1.ProcessUnknown
}

// isReplacement reports whether the agent of a pod has not started yet, so that what others report is about an earlier
// pod of the name.
func (e *evaluation) isReplacement(name string) bool {
	pod := e.Pods[name]
	return pod != nil && pod.Status.Phase == corev1.PodPending && membership.AgentStatus(pod).State.Running == nil
}

// noPod begins messages about members without a pod. The operator reads no others.
const noPod = "There is no pod with this name and the label " + v1.LabelAgent + ": " + v1.AgentEnabled + ": "

// explain returns the reason and the message of a row, or "".
func (e *evaluation) explain(row *v1.Process, others liveness) (v1.ProcessReason, string) {
	pod, agent := e.Pods[row.Pod], e.Agents[row.Pod]
	own, reports := e.reportOf[row.Pod]
	switch {
	case pod == nil && e.Problem != nil && e.Problem.Reason == v1.ReasonNoMembers:
		return v1.ProcessPodMissing, noPod + "the member remains in the list while the group selects no pods"
	case pod == nil && v1.IsWitness(row.Pod):
		return v1.ProcessPodMissing, noPod + "another one becomes the witness soon"
	case pod == nil && e.Group.Spec.Selector != nil:
		return v1.ProcessPodMissing, noPod + "the member leaves the list unless the pod is recreated soon"
	case pod == nil:
		return v1.ProcessPodMissing, noPod + "create it, or remove it from spec.members"
	case pod.DeletionTimestamp != nil:
		return v1.ProcessPodTerminating, "The pod is being deleted"
	case membership.Finished(pod):
		return v1.ProcessPodMissing,
			fmt.Sprintf("The pod has finished (%s): delete it, and create a new one", pod.Status.Phase)
	case pod.Status.Phase != corev1.PodRunning:
		return v1.ProcessPodPending, pendingMessage(pod)
	case !membership.HasAgent(pod):
		return v1.ProcessNoAgent,
			"The pod runs without an agent, because it was created before its label or without the webhook: recreate it"
	case membership.BySelection(pod) && (agent.NotInGroup || !membership.NamesGroup(pod, e.Group.Name)):
		return v1.ProcessNotInGroup, "The agent is joining the group: it is obtaining a certificate that names the group"
	case !membership.NamesGroup(pod, e.Group.Name):
		return v1.ProcessNotInGroup,
			fmt.Sprintf("The annotation %s of the pod does not list the group: add %s to it or remove it, and recreate the pod",
				v1.AnnotationGroups, e.Group.Name)
	case agent.NotInGroup:
		return v1.ProcessNotInGroup,
			"The group was added to the pod's annotation after the agent had started: recreate the pod"
	case !agent.Connected && strings.HasPrefix(agent.Problem, facts.NoCertificate):
		return v1.ProcessNoCertificate, agent.Problem
	case !agent.Connected && agent.Problem != "":
		return v1.ProcessUnreachable, unreachableMessage(row.Status, agent.Problem)
	case row.Status == v1.ProcessUnknown && others.crashed && !others.up:
		return v1.ProcessDisputed,
			"The agent is connected, but other agents report that it has crashed: check the network between the pods"
	case row.Status == v1.ProcessUnknown && others.crashed:
		return v1.ProcessDisputed, "Only some agents report that it has crashed: check the network between the pods"
	case row.Status == v1.ProcessNormal && reports && row.Priority > 0 && !own.Eligible:
		return v1.ProcessNotEligible, e.notEligibleMessage(row.Pod, own)
	}
	return "", ""
}

func pendingMessage(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return "The pod is not scheduled yet: see its events"
	}
	return "The pod is not running yet: see its events"
}

// unreachableMessage returns how to resolve a connection problem. It does not contain the
// problem itself: most problems contain addresses and times, so each attempt to connect would change the status.
func unreachableMessage(status v1.ProcessStatus, problem string) string {
	contains := func(word string) bool { return strings.Contains(problem, word) }
	if slices.ContainsFunc([]string{"certificate", "x509", "tls:"}, contains) {
		return "The operator and the agent do not accept each other's certificates: see the logs of the container " +
			v1.AgentContainer
	}
	if status == v1.ProcessCrashed { // The other agents can't reach it, either.
		return fmt.Sprintf("The agent has ended, or its node is unreachable: see the pod, and the logs of the container %s",
			v1.AgentContainer)
	}
	return fmt.Sprintf("The agent does not answer the operator on port %d: see the logs of the container %s, "+
		"and check for a NetworkPolicy that blocks the connection", control.OperatorPort, v1.AgentContainer)
}

// pause returns for how long the coordinator hands over to no other member.
func (e *evaluation) pause() time.Duration {
	if e.coordinator == nil || e.reportOf[e.coordinator.Pod] == nil {
		return 0
	}
	return time.Duration(e.reportOf[e.coordinator.Pod].PauseSeconds) * time.Second
}

func heldBackMessage(own *control.Report) string {
	return fmt.Sprintf("Its last %d tenures were short, so it does not take over for %s: see why they ended in "+
		"status.history, and the logs of the pod",
		own.ShortTenures, time.Duration(own.PenaltySeconds)*time.Second)
}

func pauseMessage(pause time.Duration) string {
	return fmt.Sprintf("Coordinators lost their leases twice in a short time, so no member takes over from the present "+
		"one for %s: see status.history", pause)
}

// notEligibleMessage returns since when the pod with this report is not eligible, and why.
func (e *evaluation) notEligibleMessage(pod string, own *control.Report) string {
	why := own.Ineligible
	switch {
	case own.Excluded && e.disruptionOf(pod) == leaving:
		why = "its node is cordoned"
		if until := membership.EvacuatedUntil(e.Nodes[e.Pods[pod].Spec.NodeName]); until.After(e.Now) {
			why = until.UTC().Format("its node is evacuated until 2006-01-02 15:04:05 UTC")
		}
	case why == "":
		return "Its agent does not say why"
	}
	return own.IneligibleSince.UTC().Format("Since 2006-01-02 15:04:05 UTC, ") + why
}
