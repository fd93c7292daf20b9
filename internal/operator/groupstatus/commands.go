package groupstatus

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// roles are the role labels that pods should have.
func (h *evaluation) roles() map[string]string {
	key := v1.RoleLabel(h.Group.Name)
	roles := map[string]string{}
	for name, pod := range h.Pods {
		_, labelled := pod.Labels[key]
		switch {
		case h.podExists(name) && h.coordinator != nil && h.coordinator.Pod == name:
			roles[name] = v1.RoleCoordinator
		case h.podExists(name) && h.inList(name):
			roles[name] = v1.RoleFollower
		case labelled:
			roles[name] = ""
		}
	}
	return roles
}

// outlook is how long a member can be expected to stay.
type disruption int

const (
	undisturbed disruption = iota
	// cordoned: its node is to be emptied.
	cordoned
	// ending: its pod is being deleted, or has ended.
	terminating
)

func (h *evaluation) disruption(name string) disruption {
	pod := h.Pods[name]
	switch {
	case !h.podExists(name) || pod.DeletionTimestamp != nil:
		return terminating
	case h.Nodes[pod.Spec.NodeName] != nil && h.Nodes[pod.Spec.NodeName].Spec.Unschedulable:
		return cordoned
	}
	return undisturbed
}

// standing is what agents are to be told. Whoever has a worse outlook than the
// best that could lead is kept from standing, and hands over first if it leads.
// So never is everybody kept from it.
func (h *evaluation) eligibility() map[string]bool {
	orders := map[string]bool{}
	best := terminating
	for i := range h.rows {
		row := &h.rows[i]
		own, speaks := h.reportOf[row.Pod]
		if speaks && isUp(row) && row.Priority > 0 && (own.Eligible || own.Excluded) {
			best = min(best, h.disruption(row.Pod))
		}
	}
	for _, v := range h.reports {
		withhold := h.disruption(v.Pod) > best && h.memberPriority(v.Pod) > 0
		if withhold != v.Excluded {
			orders[v.Pod] = !withhold
		}
	}
	return orders
}

// leavers are the pods whose agents report a group that is no more, or that they
// are no members of by any list in force. While there is no list, nobody knows
// that of a member: it may have been lost, as may the one that has overtaken it.
func (h *evaluation) podsToLeave() []string {
	known := h.List != nil && !h.StatusBehind
	var all []string
	for _, name := range slices.Sorted(maps.Keys(h.Agents)) {
		heard := h.Agents[name]
		if heard.Connected && heard.Report != nil && (heard.Report.UID != string(h.Group.UID) || known && !h.isMember(name)) {
			all = append(all, name)
		}
	}
	return all
}

// The reasons of events.
const (
	eventElected      = "CoordinatorElected"
	eventLost         = "CoordinatorLost"
	eventDisagreement = "Disagreement"
)

// Events are what has changed from one status to the next.
func Events(old, next *v1.ElectionGroupStatus) []Event {
	var all []Event
	was, now := old.Coordinator, next.Coordinator
	previous := ""
	switch {
	case was != nil:
		previous = was.Pod
	case old.LastCoordinator != nil:
		previous = old.LastCoordinator.Pod
	}
	term := fmt.Sprint(next.Term)
	if now != nil && (was == nil || was.Pod != now.Pod || was.Term != now.Term) {
		note := fmt.Sprintf("%s leads in term %d", now.Pod, now.Term)
		switch previous {
		case "":
		case now.Pod:
			note += ", as it did before"
		default:
			note += ", after " + previous
		}
		all = append(all, Event{corev1.EventTypeNormal, eventElected, note, term, now.ElectedAt.Time})
	}
	elected := meta.FindStatusCondition(next.Conditions, string(v1.CoordinatorElected))
	if lossReported(next) && !lossReported(old) && elected != nil {
		all = append(all, Event{corev1.EventTypeWarning, eventLost, elected.Message, term, elected.LastTransitionTime.Time})
	}
	agreed := meta.FindStatusCondition(next.Conditions, string(v1.Agreed))
	if was := meta.FindStatusCondition(old.Conditions, string(v1.Agreed)); isDisagreement(agreed) && !isDisagreement(was) {
		at := agreed.LastTransitionTime.Time
		all = append(all, Event{corev1.EventTypeWarning, eventDisagreement, agreed.Message, fmt.Sprint(at.Unix()), at})
	}
	return all
}

func isDisagreement(agreed *metav1.Condition) bool {
	return agreed != nil && (agreed.Reason == string(v1.ReasonCoordinatorsDiffer) || agreed.Reason == string(v1.ReasonListsDiffer))
}

func lossReported(status *v1.ElectionGroupStatus) bool {
	return status.LastCoordinator != nil && status.LastCoordinator.LossReportedAt != nil
}
