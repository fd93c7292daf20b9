package membership

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

// EvacuatedUntil returns until when coordinators leave a node; the zero time if the node has no valid annotation.
func EvacuatedUntil(node *corev1.Node) time.Time {
	if node == nil {
		return time.Time{}
	}
	until, _ := time.Parse(time.RFC3339, node.Annotations[v1.AnnotationEvacuateUntil]) // zero if it's invalid
	return until
}

// LosesCoordinators reports whether a coordinator on a node should hand over: the node is cordoned, and is probably
// being drained, or it is evacuated.
func LosesCoordinators(node *corev1.Node, now time.Time) bool {
	return node != nil && (node.Spec.Unschedulable || EvacuatedUntil(node).After(now))
}

// Location returns the node or the zone in which a pod runs; "" if it isn't known.
func Location(pod *corev1.Pod, node *corev1.Node, spread v1.Spread) string {
	switch {
	case pod == nil || Finished(pod):
		return ""
	case spread == v1.SpreadNode:
		return pod.Spec.NodeName
	case node == nil:
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// EquallyPreferred returns the member that leads while all members are healthy, and the other members that the group's
// priorityFrom prefers as much: any of them may be facts.Preferred. There are none while the rank of the first isn't
// known: for example, its pod is being replaced.
func EquallyPreferred(known *facts.Facts) (first string, others []string) {
	f := planner{Facts: known}
	list := f.MemberList()
	if list == nil || f.Group.Spec.Selector == nil {
		return "", nil
	}
	var best *candidate
	all := f.remainingMembers(list, Selects(f.Group))
	for _, c := range all {
		if f.setRank(c) != "" || c.pod == nil || c.rank == 0 {
			c.rankKnown = false
		}
		if c.priority > 0 && (best == nil || c.priority > best.priority) {
			best = c
		}
	}
	if best == nil {
		return "", nil
	}
	for _, c := range all {
		if c != best && best.rankKnown && c.rankKnown && c.rank == best.rank {
			others = append(others, c.name)
		}
	}
	return best.name, others
}
