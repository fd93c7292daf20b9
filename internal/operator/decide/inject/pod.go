package inject

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// podMetadata is the part of a pod that is always decoded. It accepts values of any
// type, because a pod that didn't opt in must never be refused.
type podMetadata struct {
	Metadata struct {
		Labels      map[string]any `json:"labels"`
		Annotations map[string]any `json:"annotations"`
	} `json:"metadata"`
}

// mirrorPodAnnotation marks a mirror pod, by which the kubelet represents a static pod.
// Changing the mirror pod would not change the static pod.
const mirrorPodAnnotation = "kubernetes.io/config.mirror"

func (m *podMetadata) optedIn() bool {
	return m.Metadata.Labels[v1.LabelAgent] == v1.AgentEnabled && !m.isMirror()
}

func (m *podMetadata) isMirror() bool {
	_, mirror := m.Metadata.Annotations[mirrorPodAnnotation]
	return mirror
}

// annotation returns "" if the pod doesn't have the annotation.
func (m *podMetadata) annotation(key string) (string, error) {
	value, ok := m.Metadata.Annotations[key]
	text, isText := value.(string)
	if ok && !isText {
		return "", fmt.Errorf("annotation %s must be a string: put quotes around it", key)
	}
	return text, nil
}

// participation is what the annotations of a pod that opted in say about its agent.
type participation struct {
	groups []string
	// selected means that the groups are those that select the pod. There may be none, and others may follow.
	selected bool
	probe    string
	options  Options
	// exec is nil unless a program runs only while the pod leads.
	exec *execution
}

// participation parses the annotations of a pod that opted in.
func (m *podMetadata) participation() (p participation, err error) {
	key := v1.AnnotationGroups
	if _, named := m.Metadata.Annotations[key]; !named {
		if _, p.selected = m.Metadata.Annotations[v1.AnnotationSelectedBy]; p.selected {
			key = v1.AnnotationSelectedBy
		}
	}
	names, err := m.annotation(key)
	if err == nil && !(p.selected && names == "") {
		p.groups, err = Groups(names)
	}
	if err == nil {
		p.probe, err = m.annotation(v1.AnnotationProbe)
	}
	if err == nil {
		err = checkProbe(p.probe)
	}
	if err == nil {
		p.options, err = m.options()
	}
	if err == nil {
		p.exec, err = m.execution()
	}
	if err == nil {
		err = p.exec.check(&p)
	}
	return p, err
}

// podSpec is the part of a pod that is decoded if the pod opted in.
type podSpec struct {
	Spec corev1.PodSpec `json:"spec"`
}

// containers returns all containers of the pod.
func (p *podSpec) containers() []corev1.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// user returns the user that the pod sets for its containers, or nil.
func (p *podSpec) user() *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.RunAsUser
}

// hasVolume reports whether the pod has a volume of a name.
func (p *podSpec) hasVolume(name string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
}

func (p *podSpec) injected() bool {
	return slices.ContainsFunc(p.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == v1.AgentContainer })
}

// check refuses a pod to which the agent cannot be added. The API server or the kubelet
// would refuse it later, with a message that doesn't mention the agent.
func (p *podSpec) check() error {
	if os := p.Spec.OS; os != nil && os.Name != "" && os.Name != corev1.Linux {
		return fmt.Errorf("the agent requires Linux, but the pod requires %s: set the label %s: %s", os.Name,
			v1.LabelAgent, v1.AgentDisabled)
	}
	if len(p.Spec.Containers) == 0 {
		return errors.New("the pod must have at least one container besides the agent")
	}
	for i := range p.Spec.Containers {
		if name := p.Spec.Containers[i].Name; name == v1.AgentContainer {
			return fmt.Errorf("the pod has a container named %s: rename it, because the agent uses that name", name)
		}
	}
	for _, name := range []string{configVolume, stateVolume, socketVolume} {
		if p.hasVolume(name) && (name != socketVolume || p.Spec.HostNetwork) {
			return fmt.Errorf("the pod has a volume named %s: rename it, because the agent uses that name", name)
		}
	}
	if err := p.checkMounts(); err != nil {
		return err
	}
	return p.checkPorts()
}

func (p *podSpec) checkPorts() error {
	for _, c := range p.containers() {
		for _, port := range c.Ports {
			reserved := port.ContainerPort >= control.PeerPort && port.ContainerPort <= control.OperatorPort
			if reserved && (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP) {
				return fmt.Errorf("container %s uses port %d: ports %d to %d are reserved for the agent",
					c.Name, port.ContainerPort, control.PeerPort, control.OperatorPort)
			}
		}
	}
	return nil
}
