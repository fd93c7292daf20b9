package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// join returns a pod with the label and the annotation by which it opts in to a group, and
// the operations that add them.
func join(pod json.RawMessage, group string) (json.RawMessage, []Operation, error) {
	return optIn(pod, v1.AnnotationGroups, func(annotations map[string]any) (any, error) { return joinedGroups(annotations, group) })
}

// annotationValue returns the value of an annotation that is added to the others.
type annotationValue func(others map[string]any) (any, error)

// optIn returns a pod with the label by which it opts in and with an annotation, and the
// operations that add them.
func optIn(pod json.RawMessage, annotation string, value annotationValue) (json.RawMessage, []Operation, error) {
	var fields map[string]any
	if err := read(pod, &fields); err != nil {
		return nil, nil, err
	}
	var p patch
	metadata, err := child(&p, fields, "", "metadata")
	if err != nil {
		return nil, nil, err
	}
	labels, err := child(&p, metadata, "/metadata", "labels")
	if err != nil {
		return nil, nil, err
	}
	annotations, err := child(&p, metadata, "/metadata", "annotations")
	if err != nil {
		return nil, nil, err
	}
	groups, err := value(annotations)
	if err != nil {
		return nil, nil, err
	}
	for _, change := range []struct {
		in         map[string]any
		field, key string
		value      any
	}{{labels, "labels", v1.LabelAgent, v1.AgentEnabled}, {annotations, "annotations", annotation, groups}} {
		if change.in[change.key] != change.value {
			change.in[change.key] = change.value
			p.addMetadata(change.field, change.key, change.value)
		}
	}
	changed, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot encode the pod: %w", err)
	}
	return changed, p.operations, p.err
}

// joinedGroups returns the value of the annotation with one more group.
func joinedGroups(annotations map[string]any, group string) (string, error) {
	before, found := annotations[v1.AnnotationGroups]
	text, isText := before.(string)
	if !found {
		return group, nil
	}
	if !isText {
		return "", fmt.Errorf("the annotation %s must be a string", v1.AnnotationGroups)
	}
	groups, err := Groups(text)
	if err != nil || slices.Contains(groups, group) {
		return text, err
	}
	return text + "," + group, nil
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
