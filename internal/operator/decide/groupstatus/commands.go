package groupstatus

import (
	"maps"
	"slices"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// roles returns the role labels that pods should have.
func (e *evaluation) roles() map[string]string {
	key := v1.RoleLabel(e.Group.Name)
	roles := map[string]string{}
	for name, pod := range e.Pods {
		_, labeled := pod.Labels[key]
		switch {
		case e.podExists(name) && e.coordinator != nil && e.coordinator.Pod == name:
			roles[name] = v1.RoleCoordinator
		case e.podExists(name) && e.inList(name) && e.hasOptedIn(name):
			roles[name] = v1.RoleFollower
		case labeled:
			roles[name] = ""
		}
	}
	return roles
}

// hasOptedIn reports whether a pod takes part in the group by its own decision: its annotation names the group, or did
// so when its agent started. spec.members may name any pod, and a label may make other controllers act on it.
func (e *evaluation) hasOptedIn(name string) bool {
	_, reports := e.reportOf[name]
	return reports || membership.HasAgent(e.Pods[name]) && membership.NamesGroup(e.Pods[name], e.Group.Name)
}

// disruption is how soon a member's pod is expected to end.
type disruption int

const (
	undisturbed disruption = iota
	// leaving: the pod's node is cordoned, and is probably being drained, or is evacuated.
	leaving
	// terminating: the pod is being deleted, or has finished.
	terminating
)

func (e *evaluation) disruptionOf(name string) disruption {
	pod := e.Pods[name]
	switch {
	case !e.podExists(name) || pod.DeletionTimestamp != nil:
		return terminating
	case membership.LosesCoordinators(e.Nodes[pod.Spec.NodeName], e.Now):
		return leaving
	}
	return undisturbed
}

// evacuationEnd returns when the next evacuation of a node of the group's pods ends; zero if none is in force.
func (e *evaluation) evacuationEnd() (next time.Time) {
	for _, node := range e.Nodes {
		if until := membership.EvacuatedUntil(node); until.After(e.Now) {
			next = facts.Earliest(next, until)
		}
	}
	return next
}

// eligibility returns the changes of eligibility that agents must be commanded. A member is excluded if another member
// that can be elected is less disrupted; if it is the coordinator, it hands over first. So the operator never excludes
// all members: if all nodes are cordoned, for example, none of their members is excluded. The only member is excluded
// if its pod is being deleted: it leads until it ends, but knows that another pod replaces it.
func (e *evaluation) eligibility() map[string]bool {
	changes := map[string]bool{}
	least := terminating
	for i := range e.rows {
		row := &e.rows[i]
		own, reports := e.reportOf[row.Pod]
		if reports && isUp(row) && row.Priority > 0 && (own.Eligible || own.Excluded) {
			least = min(least, e.disruptionOf(row.Pod))
		}
	}
	for _, r := range e.reports {
		disruption := e.disruptionOf(r.Pod)
		exclude := disruption > least && e.memberPriority(r.Pod) > 0
		if len(e.members) == 1 && disruption == terminating {
			exclude = true
		}
		if exclude != r.Excluded {
			changes[r.Pod] = !exclude
		}
	}
	return changes
}

// podsToLeave returns the pods whose agents report an earlier group of the same name, or of which no list in force has
// a member. The latter are not known while there is no list, or while agents use a newer list than the status: then the
// status may have been lost, and such an agent may be a member.
func (e *evaluation) podsToLeave() []string {
	listKnown := e.List != nil && !e.StatusBehind
	var all []string
	for _, name := range slices.Sorted(maps.Keys(e.Agents)) {
		agent := e.Agents[name]
		if !agent.Connected || agent.Report == nil {
			continue
		}
		if agent.Report.UID != string(e.Group.UID) || listKnown && !e.isMember(name) {
			all = append(all, name)
		}
	}
	return all
}
