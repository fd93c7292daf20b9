package inject

import v1 "github.com/conclave-dev/conclave/api/v1"

// Choice is how a new pod takes part in groups.
type Choice uint8

// The choices.
const (
	// NoAgent means that the pod didn't opt in.
	NoAgent Choice = iota
	// NamedGroups means that the pod takes part in the groups that its annotations name.
	NamedGroups
	// SelectedGroups means that it takes part in the groups that select it.
	SelectedGroups
)

// ChoiceOf returns the choice of a pod: its label decides or, without the label, its namespace.
func ChoiceOf(pod []byte, namespaceOptedIn bool) (Choice, error) {
	var meta podMetadata
	if err := read(pod, &meta); err != nil {
		return NoAgent, err
	}
	_, labeled := meta.Metadata.Labels[v1.LabelAgent]
	_, named := meta.Metadata.Annotations[v1.AnnotationGroups]
	_, executes := meta.Metadata.Annotations[v1.AnnotationExec]
	switch {
	case !meta.optedIn() && (labeled || !namespaceOptedIn || meta.isMirror()):
		return NoAgent, nil
	case named || executes:
		return NamedGroups, nil
	}
	return SelectedGroups, nil
}
