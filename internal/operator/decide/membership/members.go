package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// declaredMembers returns the wanted members in the order of the ring, or none if the list must not change. The witness
// isn't one of them.
//
// A selected pod becomes a member when its agent is connected. It remains a member until it has had no pod for
// MissingPodGrace. So a pod that cannot be scheduled does not count towards the majority, and a pod that a StatefulSet
// replaces is not removed and added again.
func (f *planner) declaredMembers(current *v1.MemberList) ([]v1.Member, *Problem) {
	if current == nil && f.GroupsMax > 0 {
		return nil, &Problem{v1.ReasonTooManyGroups, fmt.Sprintf(
			"The operator serves %d groups in this namespace, its maximum: delete one that isn't needed", f.GroupsMax)}
	}
	if f.Group.Spec.Selector == nil {
		return slices.Clone(f.Group.Spec.Members), nil
	}
	isSelected := Selects(f.Group)
	selected := f.selectedPods(isSelected)
	if len(selected) == 0 {
		return nil, &Problem{v1.ReasonNoMembers, fmt.Sprintf(
			"The selector matches no pods with the label %s: %s in namespace %s: check the labels in the pod template; "+
				"if that has the annotation %s, it must list the group",
			v1.LabelAgent, v1.AgentEnabled, f.Group.Namespace, v1.AnnotationGroups)}
	}
	all, problem := f.rankCandidates(append(f.remainingMembers(current, isSelected), f.joiningPods(current, selected)...))
	switch {
	case current == nil && !f.FirstListComplete && f.agentsPending(selected), len(all) == 0:
		return nil, problem
	case len(all) > v1.MaxMembers:
		return nil, &Problem{v1.ReasonTooManyMembers, fmt.Sprintf(
			"The selector matches %d pods with agents, but a group has at most %d members: narrow the selector",
			len(all), v1.MaxMembers)}
	}
	assignPriorities(all, f.Preferred)
	list := make([]v1.Member, len(all))
	for i, c := range all {
		list[i] = v1.Member{Pod: c.name, Priority: c.priority}
	}
	if current == nil {
		// The ring algorithms need more messages if the priorities decrease along the ring.
		slices.SortStableFunc(list, func(a, b v1.Member) int { return cmp.Compare(a.Priority, b.Priority) })
	}
	return list, problem
}

// selectedPods returns the selected pods, with the oldest first.
func (f *planner) selectedPods(isSelected func(*corev1.Pod) bool) []*corev1.Pod {
	var selected []*corev1.Pod
	for _, pod := range f.Pods {
		if isSelected(pod) {
			selected = append(selected, pod)
		}
	}
	slices.SortFunc(selected, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return selected
}

// candidate is a pod that is a member, or can become one.
type candidate struct {
	name string
	// member means that it is in the current list.
	member bool
	// pod is nil if a member currently has no pod.
	pod *corev1.Pod
	// rank orders the candidates. A candidate with rank 0 is never elected. If rankKnown
	// is false, the rank is an estimate.
	rank      int64
	rankKnown bool
	// preferred is the priority that it would get if it were the only candidate, and priority the one that it has, or 0 if
	// it has none yet.
	preferred int64
	priority  int32
}

// remainingMembers returns the members that remain, in their order.
func (f *planner) remainingMembers(current *v1.MemberList, isSelected func(*corev1.Pod) bool) []*candidate {
	if current == nil {
		return nil
	}
	var all []*candidate
	for _, m := range current.Members {
		if v1.IsWitness(m.Pod) {
			continue
		}
		pod := f.Pods[m.Pod]
		if pod != nil && Finished(pod) {
			pod = nil
		}
		if pod == nil && f.Missing[m.Pod] || pod != nil && (!isSelected(pod) || f.leavesOneMember(current, pod)) {
			continue
		}
		all = append(all, &candidate{name: m.Pod, member: true, pod: pod, priority: m.Priority})
	}
	return all
}

// leavesOneMember reports whether a pod leaves a list of two because it is being deleted. Two of two are a majority, so
// the other member, which leads or will, would lose the office as soon as the pod ends. The pod adopts the list without
// it before that: see group.AwaitReplacement.
func (f *planner) leavesOneMember(current *v1.MemberList, pod *corev1.Pod) bool {
	coordinator := f.Group.Status.Coordinator
	if f.Group.Spec.Safety.Mode == v1.Available || len(current.Members) != 2 || pod.DeletionTimestamp == nil ||
		coordinator == nil || coordinator.Pod == pod.Name {
		return false
	}
	return slices.ContainsFunc(current.Members, func(m v1.Member) bool {
		other := f.Pods[m.Pod]
		stays := other != nil && other.DeletionTimestamp == nil && f.Accepts(m.Pod)
		return m.Pod == coordinator.Pod && m.Priority > 0 && stays
	})
}

// joiningPods returns the pods that can become members, with the oldest first.
func (f *planner) joiningPods(current *v1.MemberList, selected []*corev1.Pod) []*candidate {
	isMember := map[string]bool{}
	if current != nil {
		for _, m := range current.Members {
			isMember[m.Pod] = true
		}
	}
	var all []*candidate
	for _, pod := range selected {
		if isMember[pod.Name] || !f.Accepts(pod.Name) || pod.DeletionTimestamp != nil {
			continue
		}
		if f.Group.Spec.PriorityFrom.NodeLabel != "" && f.Nodes[pod.Spec.NodeName] == nil {
			continue // Its rank is not known until the operator has read the node.
		}
		all = append(all, &candidate{name: pod.Name, pod: pod})
	}
	return all
}

// agentsPending reports whether the first list has to wait for agents that are not
// connected yet. Otherwise a new group would get one list for each agent that connects.
func (f *planner) agentsPending(selected []*corev1.Pod) bool {
	return slices.ContainsFunc(selected, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !f.Accepts(pod.Name)
	})
}
