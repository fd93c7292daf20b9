// Package inject puts the agent into pods that opted in: as a native sidecar,
// by a patch of the pod's JSON.
//
// A patch adds and changes nothing else: a pod is never read into types and
// written again, which would drop every field that these types don't know, a
// restartPolicy of an init container in years past. It is the same for a pod in
// an admission request and for the template of one in a file.
//
// A pod that has the container is left alone, so injecting twice is as good as
// once, and a running pod's template doesn't change with the operator's version.
package inject

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// Settings are the same for all pods.
type Settings struct {
	// AgentImage is the image of the agent.
	AgentImage string
	// IdentityURL is where agents get their certificates.
	IdentityURL string
	// Authorities are the certificates that the identity service is trusted by,
	// in PEM. Without them, an agent trusts those in its groups' ConfigMaps.
	Authorities string
}

// Operation is one of RFC 6902. All of ours add something.
type Operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// Patch is what puts the agent into a pod, or into the template of one: nothing,
// if it didn't opt in or has the agent. The error is one line for the user who
// wrote the pod.
func Patch(pod []byte, s Settings) ([]Operation, error) {
	var m marks
	if err := read(pod, &m); err != nil || !m.optedIn() {
		return nil, err
	}
	var p podSpec
	if err := read(pod, &p); err != nil || p.injected() {
		return nil, err
	}
	groups, probe, err := m.wishes()
	if err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return additions(&p, container(s, groups, probe, p.Spec.HostNetwork), volumes(groups))
}

// read takes keys for what they are, as the API server does: to encoding/json,
// "Spec" would be "spec".
func read(pod []byte, into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(pod, into); err != nil {
		return fmt.Errorf("the pod can't be read: %w", err)
	}
	return nil
}

// additions puts the agent before all other init containers: they may need to
// know who leads, and it is up before them only there.
func additions(pod *podSpec, agent *corev1.Container, volumes []corev1.Volume) ([]Operation, error) {
	var patch patch
	if pod.Spec.InitContainers == nil {
		patch.add("/spec/initContainers", []*corev1.Container{agent})
	} else {
		patch.add("/spec/initContainers/0", agent)
	}
	if pod.Spec.Volumes == nil {
		patch.add("/spec/volumes", volumes)
	} else {
		for i := range volumes {
			patch.add("/spec/volumes/-", &volumes[i])
		}
	}
	return patch.operations, patch.err
}

// patch collects operations, and the first error.
type patch struct {
	operations []Operation
	err        error
}

func (p *patch) add(path string, value any) {
	raw, err := json.Marshal(value)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("write what is added at %s: %w", path, err)
	}
	p.operations = append(p.operations, Operation{Op: "add", Path: path, Value: raw})
}
