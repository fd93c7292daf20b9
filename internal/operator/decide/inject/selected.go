package inject

import (
	"encoding/json"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Choice is how a new pod takes part in groups.
type Choice uint8

// The choices.
const (
	// NoAgent means that the pod didn't opt in.
	NoAgent Choice = iota
	// NamedGroups means that the pod takes part in the groups that its annotation names.
	NamedGroups
	// SelectedGroups means that it takes part in the groups that select it.
	SelectedGroups
)

// ChoiceOf returns the choice of a pod: its label decides or, without the label, its
// namespace.
func ChoiceOf(pod []byte, namespaceOptedIn bool) (Choice, error) {
	var meta podMetadata
	if err := read(pod, &meta); err != nil {
		return NoAgent, err
	}
	_, labeled := meta.Metadata.Labels[v1.LabelAgent]
	_, named := meta.Metadata.Annotations[v1.AnnotationGroups]
	switch {
	case !meta.optedIn() && (labeled || !namespaceOptedIn || meta.isMirror()):
		return NoAgent, nil
	case named:
		return NamedGroups, nil
	}
	return SelectedGroups, nil
}

// PatchNamed returns the operations for a pod with NamedGroups.
func PatchNamed(pod []byte, s Settings) ([]Operation, error) {
	return patchOptedIn(pod, v1.AnnotationGroups, func(annotations map[string]any) (any, error) { return annotations[v1.AnnotationGroups], nil }, s)
}

// PatchSelected returns the operations for a pod with SelectedGroups. It may be selected
// by no group: its agent then waits until one selects it.
func PatchSelected(pod []byte, groups []string, s Settings) ([]Operation, error) {
	return patchOptedIn(pod, v1.AnnotationSelectedBy, func(map[string]any) (any, error) { return strings.Join(groups, ","), nil }, s)
}

// patchOptedIn returns the operations that opt a pod in and add the agent. It returns none
// if the pod already has the agent.
func patchOptedIn(pod json.RawMessage, annotation string, value annotationValue, s Settings) ([]Operation, error) {
	changed, operations, err := optIn(pod, annotation, value)
	if err != nil {
		return nil, err
	}
	additions, err := Patch(changed, s)
	if err != nil || len(additions) == 0 {
		return nil, err
	}
	return append(operations, additions...), nil
}
