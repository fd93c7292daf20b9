package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// confirmationOf returns the entry of the annotation by which a user confirms that a pod has stopped. The UID is that
// of one pod, so it doesn't apply to its successors.
func confirmationOf(pod *corev1.Pod) string { return pod.Name + "/" + string(pod.UID) }

// confirmations returns the valid entries of the group's annotation, and the first invalid one.
func confirmations(group *v1.ElectionGroup) (valid []string, invalid string) {
	for entry := range strings.SplitSeq(group.Annotations[v1.AnnotationConfirmStopped], ",") {
		entry = strings.TrimSpace(entry)
		pod, uid, separated := strings.Cut(entry, "/")
		switch {
		case entry == "":
		case !separated || pod == "" || uid == "" || strings.ContainsAny(uid, "/ "):
			invalid = cmp.Or(invalid, entry)
		default:
			valid = append(valid, entry)
		}
	}
	return valid, invalid
}

// isConfirmed reports whether a user has confirmed that a deleted pod has stopped.
func isConfirmed(group *v1.ElectionGroup, pod *corev1.Pod) bool {
	valid, _ := confirmations(group)
	return pod.DeletionTimestamp != nil && slices.Contains(valid, confirmationOf(pod))
}

// maxConfirmed bounds the pods in the command of one message.
const maxConfirmed = 20

// stopProblem returns the Problem of deleted pods that may still run, or of an annotation
// that confirms nothing; nil if there is none.
func (f *planner) stopProblem(unknown []*corev1.Pod) *Problem {
	mistake := f.confirmationMistake(unknown)
	if len(unknown) == 0 {
		if mistake == "" {
			return nil
		}
		return &Problem{v1.ReasonStopUnconfirmed, mistake}
	}
	var names, entries []string
	for _, pod := range unknown {
		names = append(names, pod.Name)
		if len(entries) < maxConfirmed {
			entries = append(entries, confirmationOf(pod))
		}
	}
	message := fmt.Sprintf(
		"%s %s deleted, but may still run on a node that is cut off. Make sure that %s stopped, and confirm it: "+
			"kubectl annotate electiongroup %s --namespace %s --overwrite %s=%s",
		Abbreviate(names), Plural(len(names), "was", "were"), Plural(len(names), "it has", "they have"), f.Group.Name,
		f.Group.Namespace, v1.AnnotationConfirmStopped, strings.Join(entries, ","))
	if mistake != "" {
		message = mistake + ". " + message
	}
	return &Problem{v1.ReasonStopUnconfirmed, message}
}

// confirmationMistake returns what is wrong with the annotation, in one line. Entries of
// pods that no longer exist are not wrong: they have served their purpose.
func (f *planner) confirmationMistake(unknown []*corev1.Pod) string {
	valid, invalid := confirmations(f.Group)
	if invalid != "" {
		return fmt.Sprintf("Annotation %s must list POD/UID, separated by commas, got %.100q",
			v1.AnnotationConfirmStopped, invalid)
	}
	for _, entry := range valid {
		name, _, _ := strings.Cut(entry, "/")
		if pod := f.Pods[name]; pod != nil && confirmationOf(pod) == entry && pod.DeletionTimestamp == nil &&
			f.Group.Spec.Safety.Mode == v1.Strict {
			return fmt.Sprintf("Annotation %s names %s, which isn't being deleted: delete the pod first",
				v1.AnnotationConfirmStopped, name)
		}
		for _, pod := range unknown {
			if pod.Name == name && confirmationOf(pod) != entry {
				return fmt.Sprintf("Annotation %s names %s, but the UID of this pod is %s", v1.AnnotationConfirmStopped, entry,
					pod.UID)
			}
		}
	}
	return ""
}
