// Package inject adds the agent to pods that opted in. The agent is a native sidecar, and the package adds it by a JSON
// patch, with which the webhook responds to admission requests.
//
// A patch only adds, extends lists in annotations, and puts conclave-agent exec before the command of a container that
// asks for it. The package doesn't decode a pod into Go types and encode it again, because that would drop every field
// that these types don't have. For example, clients from before Kubernetes 1.28 would drop the restartPolicy of an init
// container.
//
// A pod that already has the agent's container isn't changed, because the API server may
// call the webhook again for a pod that another webhook has changed.
package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "k8s.io/apimachinery/pkg/util/json"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Settings are what all injected agents have in common.
type Settings struct {
	// AgentImage is the agent's image.
	AgentImage string
	// IdentityURL is the URL of the identity service, which issues the agents' certificates.
	IdentityURL string
	// CABundle has the CA certificates, in PEM, by which an agent verifies the identity
	// service the first time. Later it uses those that come with its certificate.
	CABundle string
	// Options are those of the agent's container, for pods that don't set them.
	Options Options
	// PullSecrets are names of Secrets in the namespaces of the pods, by which the kubelet
	// pulls the agent's image. The pod refers to them in addition to its own.
	PullSecrets []string
}

// Operation is an operation of a JSON patch (RFC 6902). This package uses "add" only, which replaces the value of a key
// that exists.
type Operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// Patch returns the operations that opt a pod in and add the agent to it. Those for a pod with SelectedGroups record
// the groups that select it. There may be none: its agent then waits until one selects it. If only the annotation
// conclave.dev/exec of a pod names a group, the pod gets the annotation conclave.dev/groups, by which the operator and
// the identity service know it.
//
// It returns no operations if the pod has no agent by choice, or already has the agent. The error is one line for the
// author of the pod.
func Patch(pod []byte, choice Choice, selecting []string, s Settings) ([]Operation, error) {
	var meta podMetadata
	if err := read(pod, &meta); err != nil || choice == NoAgent {
		return nil, err
	}
	e, err := meta.execution()
	if err != nil {
		return nil, err
	}
	var p patch
	_, named := meta.Metadata.Annotations[v1.AnnotationGroups]
	annotations := &meta.Metadata.Annotations
	switch {
	case choice == SelectedGroups:
		p.set(annotations, "annotations", v1.AnnotationSelectedBy, strings.Join(selecting, ","))
	case e != nil && !named:
		p.set(annotations, "annotations", v1.AnnotationGroups, e.group)
	}
	p.set(&meta.Metadata.Labels, "labels", v1.LabelAgent, v1.AgentEnabled)
	return p.inject(pod, &meta, s)
}

// inject returns the operations of a patch, with those that add the agent to a pod that opted in. It returns none if
// the pod already has the agent.
func (p *patch) inject(raw []byte, meta *podMetadata, s Settings) ([]Operation, error) {
	var pod podSpec
	if err := read(raw, &pod); err != nil || pod.injected() {
		return nil, err
	}
	part, err := meta.participation()
	if err != nil {
		return nil, err
	}
	if err := pod.check(); err != nil {
		return nil, err
	}
	agent, err := container(s, part, &pod)
	if err != nil {
		return nil, err
	}
	p.addExclusions(meta)
	if part.exec != nil {
		if err := part.exec.find(&pod); err != nil {
			return nil, err
		}
	}
	added := volumes(part, pod.Spec.HostNetwork)
	p.addEvictable(meta, added)
	p.addAgent(&pod, agent, added, s.PullSecrets)
	if part.exec != nil {
		p.addExec(&pod, part.exec, agent)
	}
	return p.operations, p.err
}

// read decodes JSON with case-sensitive keys, as the API server does. For encoding/json, "Spec" would match "spec".
func read(pod []byte, into any) error {
	if err := kjson.Unmarshal(pod, into); err != nil {
		return fmt.Errorf("cannot decode the pod: %w", err)
	}
	return nil
}

// addAgent adds the agent before all other init containers, because they may query
// it and init containers start in order.
func (p *patch) addAgent(pod *podSpec, agent *corev1.Container, volumes []corev1.Volume, pullSecrets []string) {
	if pod.Spec.InitContainers == nil {
		p.add("/spec/initContainers", []*corev1.Container{agent})
	} else {
		p.add("/spec/initContainers/0", agent)
	}
	if pod.Spec.Volumes == nil {
		p.add("/spec/volumes", volumes)
	} else {
		for i := range volumes {
			p.add("/spec/volumes/-", &volumes[i])
		}
	}
	if pod.Spec.HostNetwork {
		p.addSocket(pod)
	}
	p.addPullSecrets(pod, pullSecrets)
}

// addPullSecrets adds references to Secrets, except for those that the pod has already.
func (p *patch) addPullSecrets(pod *podSpec, names []string) {
	have := pod.Spec.ImagePullSecrets
	for _, name := range names {
		reference := corev1.LocalObjectReference{Name: name}
		if !slices.Contains(have, reference) {
			p.addItem("/spec/imagePullSecrets", have != nil, reference)
			have = append(have, reference)
		}
	}
}

// patch collects operations, and the first error.
type patch struct {
	operations []Operation
	err        error
}

func (p *patch) add(path string, value any) {
	raw, err := json.Marshal(value)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("cannot encode the value for %s: %w", path, err)
	}
	p.operations = append(p.operations, Operation{Op: "add", Path: path, Value: raw})
}

// addItem adds an item to the end of a list, which may not exist yet.
func (p *patch) addItem(list string, exists bool, item any) {
	if exists {
		p.add(list+"/-", item)
	} else {
		p.add(list, []any{item})
	}
}

// addMount mounts a volume in a container.
func (p *patch) addMount(container string, c *corev1.Container, mount corev1.VolumeMount) {
	p.addItem(container+"/volumeMounts", c.VolumeMounts != nil, mount)
	c.VolumeMounts = append(c.VolumeMounts, mount)
}

// extend extends a list in an annotation.
func (p *patch) extend(m *podMetadata, key string, extended func(before string) string) {
	before, err := m.annotation(key)
	if err != nil && p.err == nil {
		p.err = err
	}
	if after := extended(before); after != before {
		p.addMetadata("annotations", key, after)
	}
}

// set sets a label or an annotation, also in the metadata that has been read.
func (p *patch) set(in *map[string]any, field, key, value string) {
	if *in == nil {
		*in = map[string]any{}
		p.add("/metadata/"+field, *in)
	}
	if (*in)[key] != value {
		(*in)[key] = value
		p.addMetadata(field, key, value)
	}
}

// addMetadata adds a label or an annotation.
func (p *patch) addMetadata(field, key string, value any) {
	p.add("/metadata/"+field+"/"+strings.ReplaceAll(key, "/", "~1"), value)
}
