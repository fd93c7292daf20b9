package inject

import (
	"encoding/json"
	"fmt"
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
	if _, named := meta.Metadata.Annotations[v1.AnnotationGroups]; e != nil && !named {
		return patchOptedIn(pod, s, entry{"annotations", v1.AnnotationGroups, e.group})
	}
	return patchOptedIn(pod, s)
}

// PatchSelected returns the operations for a pod with SelectedGroups. It may be selected
// by no group: its agent then waits until one selects it.
func PatchSelected(pod []byte, groups []string, s Settings) ([]Operation, error) {
	return patchOptedIn(pod, s, entry{"annotations", v1.AnnotationSelectedBy, strings.Join(groups, ",")})
}

// patchOptedIn returns the operations that opt a pod in by the label, add annotations, and add
// the agent. It returns none if the pod already has the agent.
func patchOptedIn(pod json.RawMessage, s Settings, annotations ...entry) ([]Operation, error) {
	optIn := entry{"labels", v1.LabelAgent, v1.AgentEnabled}
	changed, operations, err := withEntries(pod, append([]entry{optIn}, annotations...))
	if err != nil {
		return nil, err
	}
	additions, err := Patch(changed, s)
	if err != nil || len(additions) == 0 {
		return nil, err
	}
	return append(operations, additions...), nil
}

// entry is a label or an annotation.
type entry struct{ field, key, value string }

// withEntries returns a pod with these labels and annotations, and the operations that add them.
func withEntries(pod json.RawMessage, entries []entry) (json.RawMessage, []Operation, error) {
	var fields map[string]any
	if err := read(pod, &fields); err != nil {
		return nil, nil, err
	}
	var p patch
	metadata, err := child(&p, fields, "", "metadata")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		in, err := child(&p, metadata, "/metadata", e.field)
		if err != nil {
			return nil, nil, err
		}
		if in[e.key] != e.value {
			in[e.key] = e.value
			p.addMetadata(e.field, e.key, e.value)
		}
	}
	changed, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot encode the pod: %w", err)
	}
	return changed, p.operations, p.err
}

// child returns a field that is an object, and adds the object if there is none.
func child(p *patch, parent map[string]any, path, key string) (map[string]any, error) {
	switch value := parent[key].(type) {
	case map[string]any:
		return value, nil
	case nil:
		added := map[string]any{}
		parent[key] = added
		p.add(path+"/"+key, struct{}{})
		return added, nil
	}
	return nil, fmt.Errorf("%s must be an object", strings.TrimPrefix(path+"/"+key, "/"))
}
