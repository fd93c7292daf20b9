package groupstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// verdict is what the witnesses say about a member: nothing, one of the two, or
// both.
type liveness struct{ up, crashed bool }

// tabulate makes the process status table.
func (h *evaluation) buildTable() {
	before := make(map[string]*v1.Process, len(h.Group.Status.Processes))
	for i := range h.Group.Status.Processes {
		row := &h.Group.Status.Processes[i]
		before[row.Pod] = row
	}
	witnesses := h.authoritativeReports()
	verdicts := h.livenessOfMembers(witnesses)
	for i, m := range h.members {
		row := v1.Process{Pod: m.Pod, Priority: m.Priority}
		was := before[m.Pod]
		row.Status = h.processStatus(m.Pod, verdicts[i])
		if was != nil && h.contactPending && len(witnesses) == 0 && row.Status != v1.ProcessCoordinator && was.Status != v1.ProcessCoordinator {
			row.Status = was.Status
		}
		row.Reason, row.Message = h.explainRow(&row, verdicts[i])
		if was != nil && h.awaitingContact(m.Pod) && was.Status == row.Status {
			row.Reason, row.Message = was.Reason, was.Message
		}
		row.Since = new(metav1.NewTime(h.Now.UTC().Truncate(time.Second)))
		if was != nil && was.Status == row.Status && was.Since != nil {
			row.Since = was.Since
		}
		h.rows = append(h.rows, row)
	}
}

// witnesses are those whose tables count. The coordinator's signs of life tell
// everybody whom it takes for crashed, so its own table comes first; the others'
// may be a moment behind.
func (h *evaluation) authoritativeReports() []*control.Report {
	if h.coordinator == nil {
		return h.reportsNaming("")
	}
	if own, ok := h.reportOf[h.coordinator.Pod]; ok {
		return []*control.Report{own}
	}
	return h.reportsNaming(h.coordinator.Pod)
}

func (h *evaluation) reportsNaming(coordinator string) []*control.Report {
	var all []*control.Report
	for _, v := range h.reports {
		if v.Coordinator == coordinator {
			all = append(all, v)
		}
	}
	return all
}

// verdicts are what the witnesses say about the members, in their order.
func (h *evaluation) livenessOfMembers(witnesses []*control.Report) []liveness {
	all := make([]liveness, len(h.members))
	for _, v := range witnesses {
		for i := range v.Processes {
			said := &v.Processes[i]
			at := i // Most tables have the same order.
			if i >= len(h.members) || h.members[i].Pod != said.Name {
				var ok bool
				if at, ok = h.index[said.Name]; !ok {
					continue
				}
			}
			if said.Name == v.Pod {
				continue
			}
			switch {
			case said.Status == string(v1.ProcessCrashed):
				all[at].crashed = true
			case v.Coordinator != "" || said.Connected:
				// Before there was a coordinator, everybody counts as normal who
				// hasn't been found dead: that says nothing.
				all[at].up = true
			}
		}
	}
	return all
}

// status is what the agents say about a member.
func (h *evaluation) processStatus(pod string, others liveness) v1.ProcessStatus {
	own, speaks := h.reportOf[pod]
	// One that knows no coordinator where there is one has only just come, and the
	// others needn't have noticed.
	newcomer := speaks && h.coordinator != nil && own.Coordinator == ""
	up := others.up || speaks && !(newcomer && others.crashed)
	switch {
	case h.coordinator != nil && h.coordinator.Pod == pod:
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

// explain says why a row is as it is, where that needs an explanation.
func (h *evaluation) explainRow(row *v1.Process, others liveness) (v1.ProcessReason, string) {
	pod, heard := h.Pods[row.Pod], h.Agents[row.Pod]
	own, speaks := h.reportOf[row.Pod]
	switch {
	case pod == nil && h.Group.Spec.Selector != nil:
		return v1.ProcessPodMissing, "there is no pod of this name: it leaves the list unless it comes back at once"
	case pod == nil:
		return v1.ProcessPodMissing, "there is no pod of this name: make it, or take it out of spec.members"
	case membership.Finished(pod):
		return v1.ProcessPodMissing, fmt.Sprintf("the pod has ended (%s): delete it, and have another one made", pod.Status.Phase)
	case pod.DeletionTimestamp != nil:
		return v1.ProcessPodTerminating, "the pod is being deleted"
	case pod.Status.Phase != corev1.PodRunning:
		return v1.ProcessPodPending, pendingMessage(pod)
	case !membership.HasAgent(pod):
		return v1.ProcessNoAgent, fmt.Sprintf("the pod runs without an agent: it needs the label %s: %s and the annotation %s: %s, "+
			"and must be made anew", v1.LabelAgent, v1.AgentEnabled, v1.AnnotationGroups, h.Group.Name)
	case !membership.NamesGroup(pod, h.Group.Name):
		return v1.ProcessNotInGroup, fmt.Sprintf("the pod doesn't name the group: its annotation %s must have %s, "+
			"and the pod must be made anew", v1.AnnotationGroups, h.Group.Name)
	case heard.NotInGroup:
		return v1.ProcessNotInGroup, "the pod has named the group only since its agent was started, which knows nothing of it: " +
			"the pod must be made anew"
	case !heard.Connected && heard.Problem != "":
		return v1.ProcessUnreachable, unreachableMessage(heard.Problem)
	case row.Status == v1.ProcessUnknown && others.crashed && !others.up:
		return v1.ProcessDisputed, "its agent answers, but other agents take it for crashed: look at the network between the pods"
	case row.Status == v1.ProcessUnknown && others.crashed:
		return v1.ProcessDisputed, "some agents take it for crashed, and some don't: look at the network between the pods"
	case row.Status == v1.ProcessNormal && speaks && row.Priority > 0 && !own.Eligible:
		return v1.ProcessNotEligible, notEligibleMessage(own)
	}
	return "", ""
}

func pendingMessage(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return "the pod waits for a node: see its events"
	}
	return "the pod isn't running yet: see its events"
}

// unreachable says what to do about a problem. It doesn't repeat it: most have
// addresses and times in them, and each attempt would change the status.
func unreachableMessage(problem string) string {
	certificate := func(word string) bool { return strings.Contains(problem, word) }
	if slices.ContainsFunc([]string{"certificate", "x509", "tls:"}, certificate) {
		return "the operator and its agent don't accept each other's certificates: see the log of its container " + v1.AgentContainer
	}
	return fmt.Sprintf("its agent doesn't answer the operator on port %d: see the log of its container %s, and whether a NetworkPolicy is in the way",
		control.OperatorPort, v1.AgentContainer)
}

func notEligibleMessage(own *control.Report) string {
	if own.Excluded {
		return "the operator keeps it from standing: its node is cordoned, or its pod is being deleted"
	}
	return "its application keeps it from standing: it has no session open, or its probe fails"
}
