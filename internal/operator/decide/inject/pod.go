package inject

import (
	"encoding/json"
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
	Spec struct {
		InitContainers []existingContainer `json:"initContainers"`
		Containers     []existingContainer `json:"containers"`
		Volumes        []namedObject       `json:"volumes"`
		HostNetwork    bool                `json:"hostNetwork"`
		OS             namedObject         `json:"os"`
		// Resources are those of the pod as a whole.
		Resources map[string]any `json:"resources"`

		ImagePullSecrets []namedObject   `json:"imagePullSecrets"`
		SecurityContext  securityContext `json:"securityContext"`
	} `json:"spec"`
}

type securityContext struct {
	RunAsUser *int64 `json:"runAsUser"`
}

type namedObject struct {
	Name string `json:"name"`
}

// existingContainer is a container that the pod already has.
type existingContainer struct {
	Name  string `json:"name"`
	Ports []struct {
		ContainerPort int64  `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
	Command        []string        `json:"command"`
	LivenessProbe  json.RawMessage `json:"livenessProbe"`
	ReadinessProbe json.RawMessage `json:"readinessProbe"`
	StartupProbe   json.RawMessage `json:"startupProbe"`
	Env            []namedObject   `json:"env"`
	VolumeMounts   []existingMount `json:"volumeMounts"`
	Resources      struct {
		Limits   corev1.ResourceList `json:"limits"`
		Requests corev1.ResourceList `json:"requests"`
	} `json:"resources"`
	SecurityContext securityContext `json:"securityContext"`
}

type existingMount struct {
	MountPath string `json:"mountPath"`
}

func (p *podSpec) injected() bool {
	return slices.ContainsFunc(p.Spec.InitContainers,
		func(c existingContainer) bool { return c.Name == v1.AgentContainer })
}

// check refuses a pod to which the agent cannot be added. The API server or the kubelet
// would refuse it later, with a message that doesn't mention the agent.
func (p *podSpec) check() error {
	if os := p.Spec.OS.Name; os != "" && os != "linux" {
		return fmt.Errorf("the agent requires Linux, but the pod requires %s: set the label %s: %s", os,
			v1.LabelAgent, v1.AgentDisabled)
	}
	if len(p.Spec.Containers) == 0 {
		return errors.New("the pod must have at least one container besides the agent")
	}
	for _, c := range p.Spec.Containers {
		if c.Name == v1.AgentContainer {
			return fmt.Errorf("the pod has a container named %s: rename it, because the agent uses that name", c.Name)
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.Name == configVolume || v.Name == stateVolume || v.Name == socketVolume && p.Spec.HostNetwork {
			return fmt.Errorf("the pod has a volume named %s: rename it, because the agent uses that name", v.Name)
		}
	}
	if err := p.checkMounts(); err != nil {
		return err
	}
	return p.checkPorts()
}

func (p *podSpec) checkPorts() error {
	for _, containers := range [][]existingContainer{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			for _, port := range c.Ports {
				reserved := port.ContainerPort >= control.PeerPort && port.ContainerPort <= control.OperatorPort
				if reserved && (port.Protocol == "" || port.Protocol == "TCP") {
					return fmt.Errorf("container %s uses port %d: ports %d to %d are reserved for the agent",
						c.Name, port.ContainerPort, control.PeerPort, control.OperatorPort)
				}
			}
		}
	}
	return nil
}
