package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// members are the wanted ones in the order of the ring. There are none as long
// as the list has to stay as it is.
//
// A selected pod becomes a member when its agent is heard, and stays one until it
// has been gone for a while: one that can't be scheduled doesn't count against
// the majority, and one that a StatefulSet replaces isn't taken out and back in.
func (f *Facts) wantedMembers(current *v1.MemberList) ([]v1.Member, *Problem) {
	if f.Group.Spec.Selector == nil {
		return slices.Clone(f.Group.Spec.Members), nil
	}
	selected := Selects(f.Group)
	found := f.selectedPods(selected)
	if len(found) == 0 {
		return nil, f.noMembersProblem()
	}
	all, problem := f.rankCandidates(append(f.remainingMembers(current, selected), f.joiningPods(current, found)...))
	switch {
	case current == nil && !f.FirstListComplete && f.agentsPending(found), len(all) == 0:
		return nil, problem
	case len(all) > v1.MaxMembers:
		return nil, &Problem{v1.ReasonTooManyMembers, fmt.Sprintf(
			"the selector finds %d pods with agents, and a group has %d members at most: narrow the selector", len(all), v1.MaxMembers)}
	}
	assignPriorities(all)
	list := make([]v1.Member, len(all))
	for i, c := range all {
		list[i] = v1.Member{Pod: c.name, Priority: c.priority}
	}
	if current == nil {
		// Against the ring's direction, the textbooks' elections need more messages.
		slices.SortStableFunc(list, func(a, b v1.Member) int { return cmp.Compare(a.Priority, b.Priority) })
	}
	return list, problem
}

// Selects reports of pods whether the group's selector finds them: pods with
// the right labels that name the group and haven't finished.
func Selects(group *v1.ElectionGroup) func(*corev1.Pod) bool {
	matches := MatchesLabels(group)
	return func(pod *corev1.Pod) bool {
		return matches(pod) && !Finished(pod) && NamesGroup(pod, group.Name)
	}
}

// MatchesLabels reports of pods whether they have the labels that the group's selector wants.
func MatchesLabels(group *v1.ElectionGroup) func(*corev1.Pod) bool {
	if group.Spec.Selector == nil {
		return func(*corev1.Pod) bool { return false }
	}
	selector, err := metav1.LabelSelectorAsSelector(group.Spec.Selector.LabelSelector())
	if err != nil {
		selector = labels.Nothing() // The schema lets no such selector pass.
	}
	return func(pod *corev1.Pod) bool { return selector.Matches(labels.Set(pod.Labels)) }
}

// GroupsOf returns the groups that a pod's annotation names, without empty entries.
func GroupsOf(pod *corev1.Pod) []string {
	var groups []string
	for group := range v1.GroupNames(pod.Annotations[v1.AnnotationGroups]) {
		if group != "" {
			groups = append(groups, group)
		}
	}
	return groups
}

// NamesGroup reports whether a pod's annotation names a group.
func NamesGroup(pod *corev1.Pod, group string) bool {
	for name := range v1.GroupNames(pod.Annotations[v1.AnnotationGroups]) {
		if name == group {
			return true
		}
	}
	return false
}

// HasAgent reports whether a pod has an agent: a native sidecar, which is what the
// webhook injects. An ordinary container of that name isn't one. The webhook refuses
// to add an agent beside it, and the kubelet would stop it before the application.
func HasAgent(pod *corev1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == v1.AgentContainer {
			return true
		}
	}
	return false
}

// selected are the pods that the selector finds, the oldest first.
func (f *Facts) selectedPods(finds func(*corev1.Pod) bool) []*corev1.Pod {
	var found []*corev1.Pod
	for _, pod := range f.Pods {
		if finds(pod) {
			found = append(found, pod)
		}
	}
	slices.SortFunc(found, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return found
}

// nobody is the Problem of a selector that finds nothing.
func (f *Facts) noMembersProblem() *Problem {
	matches := MatchesLabels(f.Group)
	var mute []string
	for _, pod := range f.Pods {
		if matches(pod) && !Finished(pod) {
			mute = append(mute, pod.Name)
		}
	}
	if len(mute) == 0 {
		return &Problem{v1.ReasonNoMembers, "the selector finds no pods in namespace " + f.Group.Namespace +
			": are the labels right, and do the pods exist?"}
	}
	return &Problem{v1.ReasonNoMembers, fmt.Sprintf("the selector matches %s, but no pod names the group: pods need the label %s: %s "+
		"and the annotation %s: %s in their template, and to be made anew",
		Abbreviate(mute), v1.LabelAgent, v1.AgentEnabled, v1.AnnotationGroups, f.Group.Name)}
}

// Abbreviate names three of the names at most, in order.
func Abbreviate(names []string) string {
	const most = 3
	names = slices.Sorted(slices.Values(names))
	switch {
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	case len(names) > 1:
		return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	}
	return strings.Join(names, "")
}

// candidate is a pod that is a member, or is to be one.
type candidate struct {
	name string
	// member: it is on the list.
	member bool
	// pod is nil if a member has none just now.
	pod *corev1.Pod
	// rank orders the candidates; 0 never stands. That of a member may be unknown.
	rank      int64
	rankKnown bool
	// wish is the priority that it would have if it were alone. priority is the one
	// that it has, 0 if it has none yet.
	preferred int64
	priority  int32
}

// staying are the members that stay, in their order.
func (f *Facts) remainingMembers(current *v1.MemberList, selected func(*corev1.Pod) bool) []*candidate {
	if current == nil {
		return nil
	}
	pods := make(map[string]*corev1.Pod, len(f.Pods))
	for _, pod := range f.Pods {
		pods[pod.Name] = pod
	}
	var all []*candidate
	for _, m := range current.Members {
		pod := pods[m.Pod]
		if pod != nil && Finished(pod) {
			pod = nil
		}
		if pod == nil && f.Missing[m.Pod] || pod != nil && !selected(pod) {
			continue
		}
		all = append(all, &candidate{name: m.Pod, member: true, pod: pod, priority: m.Priority})
	}
	return all
}

// joining are the pods that become members, the oldest first.
func (f *Facts) joiningPods(current *v1.MemberList, found []*corev1.Pod) []*candidate {
	present := map[string]bool{}
	if current != nil {
		for _, m := range current.Members {
			present[m.Pod] = true
		}
	}
	var all []*candidate
	for _, pod := range found {
		if present[pod.Name] || !f.Connected[pod.UID] || pod.DeletionTimestamp != nil {
			continue
		}
		if f.Group.Spec.PriorityFrom.NodeLabel != "" && f.Nodes[pod.Spec.NodeName] == nil {
			continue // Its rank will be known in a moment.
		}
		all = append(all, &candidate{name: pod.Name, pod: pod})
	}
	return all
}

// incomplete reports whether agents are still awaited for the first list: a
// group that begins with one after the other would begin with many lists.
func (f *Facts) agentsPending(found []*corev1.Pod) bool {
	return slices.ContainsFunc(found, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !f.Connected[pod.UID]
	})
}
