package membership

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// maxUnlisted bounds the pods in the message about them.
const maxUnlisted = 8

// InNoGroup reports whether a pod has an agent that belongs to no group.
func InNoGroup(pod *corev1.Pod) bool {
	return HasAgent(pod) && !Finished(pod) && pod.DeletionTimestamp == nil && v1.GroupsAnnotation(pod.Annotations) == ""
}

// Unlisted returns the pods that follow those in spec.members and are in no group: their StatefulSet was scaled
// up, and the list wasn't changed. pod returns the pod of a name, or nil.
func Unlisted(group *v1.ElectionGroup, pod func(name string) *corev1.Pod) (names []string) {
	for _, m := range group.Spec.Members {
		for next := ordinalPlus(m.Pod, 1); next != "" && len(names) < maxUnlisted; next = ordinalPlus(next, 1) {
			if p := pod(next); hasMember(group.Spec.Members, next) || slices.Contains(names, next) || p == nil || !InNoGroup(p) {
				break
			}
			names = append(names, next)
		}
	}
	slices.Sort(names)
	return names
}

// Before returns the pods of a StatefulSet that a pod may follow as Unlisted describes, the nearest first.
func Before(pod string) (names []string) {
	for name := ordinalPlus(pod, -1); name != "" && len(names) < maxUnlisted; name = ordinalPlus(name, -1) {
		names = append(names, name)
	}
	return names
}

// ordinalPlus returns the name of the pod n ordinals further in its StatefulSet, or "" if there can't be any.
func ordinalPlus(pod string, n int) string {
	i := strings.LastIndexByte(pod, '-') + 1
	ordinal, err := strconv.Atoi(pod[i:])
	if i == 0 || err != nil || ordinal+n < 0 {
		return ""
	}
	return pod[:i] + strconv.Itoa(ordinal+n)
}
