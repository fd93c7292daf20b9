package inject

import (
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

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

// PatchNamed returns the operations for a pod with NamedGroups. If only the annotation conclave.dev/exec names a group,
// the pod gets the annotation conclave.dev/groups, by which the operator and the identity service know it.
func PatchNamed(pod []byte, s Settings) ([]Operation, error) {
	var meta podMetadata
	if err := read(pod, &meta); err != nil {
		return nil, err
	}
	e, err := meta.execution()
	if err != nil {
		return nil, err
	}
	var p patch
	if _, named := meta.Metadata.Annotations[v1.AnnotationGroups]; e != nil && !named {
		p.annotate(&meta, v1.AnnotationGroups, e.group)
	}
	return p.optIn(pod, &meta, s)
}

// PatchSelected returns the operations for a pod with SelectedGroups. It may be selected
// by no group: its agent then waits until one selects it.
func PatchSelected(pod []byte, groups []string, s Settings) ([]Operation, error) {
	var meta podMetadata
	if err := read(pod, &meta); err != nil {
		return nil, err
	}
	var p patch
	p.annotate(&meta, v1.AnnotationSelectedBy, strings.Join(groups, ","))
	return p.optIn(pod, &meta, s)
}

// annotate adds an annotation to a pod, also to its metadata.
func (p *patch) annotate(m *podMetadata, key, value string) {
	m.Metadata.Annotations = p.set(m.Metadata.Annotations, "annotations", key, value)
}

// optIn opts the pod in by the label, and adds the agent.
func (p *patch) optIn(pod []byte, m *podMetadata, s Settings) ([]Operation, error) {
	m.Metadata.Labels = p.set(m.Metadata.Labels, "labels", v1.LabelAgent, v1.AgentEnabled)
	return p.inject(pod, m, s)
}

// set sets a label or an annotation, and returns those that the pod has with it.
func (p *patch) set(in map[string]any, field, key, value string) map[string]any {
	if in == nil {
		in = map[string]any{}
		p.add("/metadata/"+field, in)
	}
	if in[key] != value {
		in[key] = value
		p.addMetadata(field, key, value)
	}
	return in
}
