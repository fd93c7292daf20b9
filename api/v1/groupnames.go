package v1

import (
	"iter"
	"strings"
)

// GroupNames returns the entries of a pod's annotation AnnotationGroups in their
// order: names separated by commas, with optional white space around each. A blank
// annotation has none.
//
// GroupNames doesn't validate. An entry may be empty, repeated, or not a valid name:
// the webhook refuses to admit such a pod, but a pod that was created without the
// webhook, or whose annotation was edited later, can still have it.
func GroupNames(annotation string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if strings.TrimSpace(annotation) == "" {
			return
		}
		for name := range strings.SplitSeq(annotation, ",") {
			if !yield(strings.TrimSpace(name)) {
				return
			}
		}
	}
}

// GroupsAnnotation returns the value of the annotation that names the groups of a pod:
// AnnotationGroups or, without it, AnnotationSelectedBy.
func GroupsAnnotation(annotations map[string]string) string {
	if groups, ok := annotations[AnnotationGroups]; ok {
		return groups
	}
	return annotations[AnnotationSelectedBy]
}
