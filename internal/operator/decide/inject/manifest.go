package inject

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// kind is a kind of object, in any version.
type kind struct{ group, name string }

// templatePaths has the path of the pod or pod template in each kind that has one.
var templatePaths = map[kind][]string{
	{"", "Pod"}:                   {},
	{"", "PodTemplate"}:           {"template"},
	{"", "ReplicationController"}: {"spec", "template"},
	{"apps", "Deployment"}:        {"spec", "template"},
	{"apps", "StatefulSet"}:       {"spec", "template"},
	{"apps", "DaemonSet"}:         {"spec", "template"},
	{"apps", "ReplicaSet"}:        {"spec", "template"},
	{"batch", "Job"}:              {"spec", "template"},
	{"batch", "CronJob"}:          {"spec", "jobTemplate", "spec", "template"},
}

// Outcome is the result for one pod or pod template.
type Outcome uint8

// The outcomes.
const (
	// NotOptedIn means that the pod didn't opt in.
	NotOptedIn Outcome = iota
	// LabelMisplaced means that the pod didn't opt in, probably by mistake: the object
	// has the label, but its pod template doesn't.
	LabelMisplaced
	// Injected means that the operations add the agent.
	Injected
	// AlreadyInjected means that the pod already has the agent.
	AlreadyInjected
)

// Finding is a pod or pod template in a manifest.
type Finding struct {
	// Object names the object that contains it, such as StatefulSet bank/ledger.
	Object  string
	Outcome Outcome
	// Operations are relative to the whole manifest.
	Operations []Operation
}

// object is the part of an object that is decoded.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace    string         `json:"namespace"`
		Name         string         `json:"name"`
		GenerateName string         `json:"generateName"`
		Labels       map[string]any `json:"labels"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (o *object) kind() kind {
	group, _, ok := strings.Cut(o.APIVersion, "/")
	if !ok {
		group = ""
	}
	return kind{group, o.Kind}
}

func (o *object) String() string {
	name := o.Metadata.Name
	if name == "" {
		name = o.Metadata.GenerateName
	}
	if o.Metadata.Namespace != "" {
		name = o.Metadata.Namespace + "/" + name
	}
	return strings.TrimSuffix(o.Kind+" "+name, " ")
}

// Find returns the pods and pod templates in a manifest, with the operations that add
// the agent to each of them. The manifest is one object, which may be a list.
func Find(manifest []byte, s Settings) ([]Finding, error) {
	var o object
	readable := read(manifest, &o) == nil // The API server reports objects that cannot be decoded.
	if readable && strings.HasSuffix(o.Kind, "List") {
		return findItems(o.Items, s)
	}
	path, supported := templatePaths[o.kind()]
	pod, found := descend(manifest, path)
	if !readable || !supported || !found {
		return nil, nil
	}
	f := Finding{Object: o.String()}
	operations, err := patchFor(&pod, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Object, err)
	}
	f.Operations = prefixed(path, operations)
	f.Outcome = outcome(pod, len(operations) > 0)
	if f.Outcome == NotOptedIn && o.Metadata.Labels[v1.LabelAgent] == v1.AgentEnabled {
		f.Outcome = LabelMisplaced
	}
	return []Finding{f}, nil
}

// patchFor returns the operations for a pod. If the pod joins a group, it becomes the pod
// that has opted in.
func patchFor(pod *json.RawMessage, s Settings) ([]Operation, error) {
	if s.Group == "" {
		return Patch(*pod, s)
	}
	joined, operations, err := join(*pod, s.Group)
	if err != nil {
		return nil, err
	}
	additions, err := Patch(joined, s)
	if err != nil || len(additions) == 0 {
		return nil, err // The pod has the agent already.
	}
	*pod = joined
	return append(operations, additions...), nil
}

func findItems(items []json.RawMessage, s Settings) ([]Finding, error) {
	var all []Finding
	for i, item := range items {
		found, err := Find(item, s)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			f.Operations = prefixed([]string{"items", strconv.Itoa(i)}, f.Operations)
			all = append(all, f)
		}
	}
	return all, nil
}

// descend returns the value at a path of an object.
func descend(object json.RawMessage, path []string) (json.RawMessage, bool) {
	for _, key := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(object, &fields) != nil {
			return nil, false
		}
		object = fields[key]
	}
	return object, len(object) > 0
}

func outcome(pod []byte, patched bool) Outcome {
	var meta podMetadata
	switch err := read(pod, &meta); {
	case patched:
		return Injected
	case err == nil && meta.optedIn():
		return AlreadyInjected
	}
	return NotOptedIn
}

// prefixed returns operations for an object, given operations for the value at a path.
func prefixed(path []string, operations []Operation) []Operation {
	// None of these keys requires escaping.
	prefix := strings.Join(append([]string{""}, path...), "/")
	result := make([]Operation, len(operations))
	for i, o := range operations {
		o.Path = prefix + o.Path
		result[i] = o
	}
	return result
}
