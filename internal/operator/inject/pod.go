package inject

import (
	"errors"
	"fmt"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// marks is what is read of every pod. The rest may be as it likes, since pods
// that didn't opt in are none of our business: hence also any values.
type marks struct {
	Metadata struct {
		Labels      map[string]any `json:"labels"`
		Annotations map[string]any `json:"annotations"`
	} `json:"metadata"`
}

// mirrored marks what a kubelet shows of a pod that it has from a file: changing
// that would change nothing on the node.
const mirrored = "kubernetes.io/config.mirror"

func (m *marks) optedIn() bool {
	_, mirror := m.Metadata.Annotations[mirrored]
	return m.Metadata.Labels[v1.LabelAgent] == v1.AgentEnabled && !mirror
}

// annotation is "" where there is none.
func (m *marks) annotation(key string) (string, error) {
	value, ok := m.Metadata.Annotations[key]
	text, isText := value.(string)
	if ok && !isText {
		return "", fmt.Errorf("annotation %s must be text: put quotes around it", key)
	}
	return text, nil
}

// wishes are what the annotations of a pod that opted in say.
func (m *marks) wishes() (groups []string, probe string, err error) {
	named, err := m.annotation(v1.AnnotationGroups)
	if err == nil {
		groups, err = Groups(named)
	}
	if err == nil {
		probe, err = m.annotation(v1.AnnotationProbe)
	}
	if err == nil {
		err = checkProbe(probe)
	}
	return groups, probe, err
}

// podSpec is what is read of a pod that opted in.
type podSpec struct {
	Spec struct {
		InitContainers []otherContainer `json:"initContainers"`
		Containers     []otherContainer `json:"containers"`
		Volumes        []named          `json:"volumes"`
		HostNetwork    bool             `json:"hostNetwork"`
		OS             named            `json:"os"`
	} `json:"spec"`
}

type named struct {
	Name string `json:"name"`
}

// otherContainer is one that is in the pod already.
type otherContainer struct {
	Name  string `json:"name"`
	Ports []struct {
		ContainerPort int64  `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
}

func (p *podSpec) injected() bool {
	for _, c := range p.Spec.InitContainers {
		if c.Name == v1.AgentContainer {
			return true
		}
	}
	return false
}

// check refuses a pod that can't have the agent, and that the API server or the
// node would refuse later in words that don't help.
func (p *podSpec) check() error {
	if os := p.Spec.OS.Name; os != "" && os != "linux" {
		return fmt.Errorf("the agent runs on Linux, and the pod wants %s: take the label %s off it", os, v1.LabelAgent)
	}
	if len(p.Spec.Containers) == 0 {
		return errors.New("the pod has no containers: name one that the agent is there for")
	}
	for _, c := range p.Spec.Containers {
		if c.Name == v1.AgentContainer {
			return fmt.Errorf("the pod has a container %s of its own: give it another name, since the agent gets that one", c.Name)
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.Name == configVolume || v.Name == stateVolume {
			return fmt.Errorf("the pod has a volume %s of its own: give it another name, since the agent gets that one", v.Name)
		}
	}
	return p.checkPorts()
}

func (p *podSpec) checkPorts() error {
	for _, containers := range [][]otherContainer{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			for _, port := range c.Ports {
				taken := port.ContainerPort >= control.PeerPort && port.ContainerPort <= control.OperatorPort
				if taken && (port.Protocol == "" || port.Protocol == "TCP") {
					return fmt.Errorf("container %s listens on port %d, which the agent needs: the ports from %d to %d are its own",
						c.Name, port.ContainerPort, control.PeerPort, control.OperatorPort)
				}
			}
		}
	}
	return nil
}
