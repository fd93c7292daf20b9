package membership

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Selects returns a function that reports whether the group's selector selects a pod: it matches the pod's labels, the
// pod has opted in, its annotation names the group, and it has not finished.
func Selects(group *v1.ElectionGroup) func(*corev1.Pod) bool {
	matches := MatchesLabels(group)
	return func(pod *corev1.Pod) bool {
		return matches(pod) && !v1.IsWitness(pod.Name) && OptedIn(pod) && !Finished(pod) && NamesGroup(pod, group.Name)
	}
}

// OptedIn reports whether a pod has the label of those that may have an agent: the operator follows no other pod.
func OptedIn(pod *corev1.Pod) bool { return pod.Labels[v1.LabelAgent] == v1.AgentEnabled }

// MatchesLabels returns a function that reports whether the group's selector matches the labels of a pod.
func MatchesLabels(group *v1.ElectionGroup) func(*corev1.Pod) bool {
	if group.Spec.Selector == nil {
		return func(*corev1.Pod) bool { return false }
	}
	selector, err := metav1.LabelSelectorAsSelector(group.Spec.Selector.LabelSelector())
	if err != nil {
		selector = labels.Nothing() // The schema rejects such a selector.
	}
	return func(pod *corev1.Pod) bool { return selector.Matches(labels.Set(pod.Labels)) }
}

// SelectingGroups returns the names of the groups that select a pod of their namespace, in alphabetical order. A pod
// whose name the API server is yet to generate can be selected by its labels only.
func SelectingGroups(groups []v1.ElectionGroup, pod *corev1.Pod) []string {
	var names []string
	for i := range groups {
		if group := &groups[i]; group.DeletionTimestamp == nil && TakesPart(group)(pod) {
			names = append(names, group.Name)
		}
	}
	slices.Sort(names)
	return names
}

// BySelection reports whether a pod takes part in the groups that select it, because its author didn't name its groups.
func BySelection(pod *corev1.Pod) bool {
	_, named := pod.Annotations[v1.AnnotationGroups]
	_, selected := pod.Annotations[v1.AnnotationSelectedBy]
	return selected && !named
}

// TakesPart returns a function that reports whether a pod takes part in a group: its spec.members names the pod, its
// selector matches the labels, or the pod is in a member list. A pod that a group no longer selects remains in a list
// until the members have adopted the next one.
func TakesPart(group *v1.ElectionGroup) func(*corev1.Pod) bool {
	matches, members := MatchesLabels(group), MembersOf(group)
	return func(pod *corev1.Pod) bool { return slices.Contains(members, pod.Name) || matches(pod) }
}

// MembersOf returns the pods in the spec of a group, in its member list, and in the previous one.
func MembersOf(group *v1.ElectionGroup) (pods []string) {
	add := func(members []v1.Member) {
		for _, m := range members {
			pods = append(pods, m.Pod)
		}
	}
	add(group.Spec.Members)
	if list := group.Status.Protocol.MemberList; list != nil {
		add(list.Members)
		if list.Previous != nil {
			add(list.Previous.Members)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// GroupsOf returns the groups that a pod's annotation names, without empty entries.
func GroupsOf(pod *corev1.Pod) []string {
	var groups []string
	for group := range v1.GroupNames(v1.GroupsAnnotation(pod.Annotations)) {
		if group != "" {
			groups = append(groups, group)
		}
	}
	return groups
}

// NamesGroup reports whether a pod's annotation names a group.
func NamesGroup(pod *corev1.Pod, group string) bool { return slices.Contains(GroupsOf(pod), group) }

// HasAgent reports whether a pod has an agent: a native sidecar, which is what the
// webhook injects. An ordinary container of that name isn't one. The webhook refuses
// to add an agent beside it, and the kubelet would stop it before the application.
func HasAgent(pod *corev1.Pod) bool { return agentContainer(pod) != nil }

// AgentImage returns the image of a pod's agent, or "" if the pod has none.
func AgentImage(pod *corev1.Pod) string {
	if agent := agentContainer(pod); agent != nil {
		return agent.Image
	}
	return ""
}

func agentContainer(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == v1.AgentContainer {
			return c
		}
	}
	return nil
}

// IsFollowed reports whether the operator keeps a stream to the pod's agent open.
func IsFollowed(pod *corev1.Pod) bool {
	return HasAgent(pod) && pod.Status.PodIP != "" && !Finished(pod)
}

// Finished reports whether a pod has succeeded or failed.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Plural returns the form of a word for n things.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Abbreviate lists up to three of the names, in alphabetical order.
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
