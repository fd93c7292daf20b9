package inject

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// kind is one of objects, in whatever version.
type kind struct{ group, name string }

// templates lead to the pod in each kind that has one.
var templates = map[kind][]string{
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

// Outcome is what became of a pod, or of the template of one.
type Outcome uint8

// The outcomes.
const (
	// NotOptedIn: it was left alone.
	NotOptedIn Outcome = iota
	// LabelMisplaced: it was left alone, and somebody may wonder why: the object
	// around the template has the label, which asks for nothing there.
	LabelMisplaced
	// Injected: it gets the agent.
	Injected
	// AlreadyInjected: it has the agent already.
	AlreadyInjected
)

// Finding is a pod or a template of one in an object of a file.
type Finding struct {
	// Object names the object that it is in, such as StatefulSet bank/ledger.
	Object  string
	Outcome Outcome
	// Operations are for the object as a whole.
	Operations []Operation
}

// object is what is read of any object.
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

// Find finds the pods and the templates of pods in an object of a file, which
// may be a list of others, and what puts the agent into each.
func Find(manifest []byte, s Settings) ([]Finding, error) {
	var o object
	readable := read(manifest, &o) == nil // If not, the API server will say so.
	if readable && strings.HasSuffix(o.Kind, "List") {
		return findItems(o.Items, s)
	}
	path, known := templates[o.kind()]
	pod, there := descend(manifest, path)
	if !readable || !known || !there {
		return nil, nil
	}
	f := Finding{Object: o.String()}
	operations, err := Patch(pod, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Object, err)
	}
	f.Operations = below(path, operations)
	f.Outcome = outcome(pod, len(operations) > 0)
	if f.Outcome == NotOptedIn && o.Metadata.Labels[v1.LabelAgent] == v1.AgentEnabled {
		f.Outcome = LabelMisplaced
	}
	return []Finding{f}, nil
}

func findItems(items []json.RawMessage, s Settings) ([]Finding, error) {
	var all []Finding
	for i, item := range items {
		found, err := Find(item, s)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			f.Operations = below([]string{"items", strconv.Itoa(i)}, f.Operations)
			all = append(all, f)
		}
	}
	return all, nil
}

// descend is what an object has at a path.
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
	var m marks
	switch err := read(pod, &m); {
	case patched:
		return Injected
	case err == nil && m.optedIn():
		return AlreadyInjected
	}
	return NotOptedIn
}

// below are operations on what an object has at a path, for the object itself.
func below(path []string, operations []Operation) []Operation {
	// None of these keys has to be escaped.
	prefix := strings.Join(append([]string{""}, path...), "/")
	moved := make([]Operation, len(operations))
	for i, o := range operations {
		o.Path = prefix + o.Path
		moved[i] = o
	}
	return moved
}
