package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// An init container copies the agent's binary to a volume, from which another container runs it. The mount in that
// container is read-only.
const (
	execVolume    = "conclave-exec"
	execContainer = "conclave-exec"
	execFolder    = "/run/conclave-exec"
	execBinary    = execFolder + "/conclave-agent"
)

// execution is what the annotation conclave.dev/exec says: the command of a container runs only while the pod leads a
// group. The container is "" if it is the only one. index is its place in the pod, after find.
type execution struct {
	group, container string
	index            int
}

// execution parses the annotation, and returns nil if there is none.
func (m *podMetadata) execution() (*execution, error) {
	value, err := m.annotation(v1.AnnotationExec)
	if _, ok := m.Metadata.Annotations[v1.AnnotationExec]; !ok || err != nil {
		return nil, err
	}
	group, container, named := strings.Cut(value, "/")
	if !groupName.MatchString(group) || named && container == "" {
		return nil, fmt.Errorf("annotation %s must be the name of a group, such as ledger, or of a group and a container, "+
			"such as ledger/app, got %.80q", v1.AnnotationExec, value)
	}
	return &execution{group: group, container: container}, nil
}

// check checks the other annotations of the pod.
func (e *execution) check(p *participation) error {
	switch {
	case e == nil:
	case !slices.Contains(p.groups, e.group):
		return fmt.Errorf("annotation %s must name one of the groups of the annotation %s, got %.80q", v1.AnnotationExec,
			v1.AnnotationGroups, e.group)
	case p.probe != "":
		return fmt.Errorf(
			"annotation %s must not be set together with %s: a program that waits for its election doesn't answer",
			v1.AnnotationProbe, v1.AnnotationExec)
	}
	return nil
}

// find finds the container. The error is about what wouldn't work in it.
func (e *execution) find(p *podSpec) error {
	var names []string
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	e.index = slices.Index(names, e.container)
	if e.container == "" && len(names) == 1 {
		e.index = 0
	}
	if e.index < 0 {
		return fmt.Errorf("annotation %s must name one of the containers %s, as in %s/%s", v1.AnnotationExec,
			strings.Join(names, ", "), e.group, names[0])
	}
	if slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == execContainer }) {
		return fmt.Errorf("the pod has a container named %s: rename it, because the agent uses that name", execContainer)
	}
	if p.hasVolume(execVolume) {
		return fmt.Errorf("the pod has a volume named %s: rename it, because the agent uses that name", execVolume)
	}
	return checkExec(&p.Spec.Containers[e.index])
}

func checkExec(c *corev1.Container) error {
	if len(c.Command) == 0 {
		return fmt.Errorf(
			"container %s must have a command, because of the annotation %s: the one in the image is unknown here",
			c.Name, v1.AnnotationExec)
	}
	for _, probe := range []struct {
		name  string
		value *corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if probe.value != nil {
			return fmt.Errorf(
				"container %s must have no %s, because of the annotation %s: it would fail while another pod leads", c.Name,
				probe.name, v1.AnnotationExec)
		}
	}
	if mountsAt(c, execFolder) {
		return fmt.Errorf("container %s mounts a volume at %s: use another path, because the agent's binary is there",
			c.Name, execFolder)
	}
	return nil
}

// addExec makes a container run its command by conclave-agent exec. It follows addAgent.
func (p *patch) addExec(pod *podSpec, e *execution, agent *corev1.Container) {
	mount := corev1.VolumeMount{Name: execVolume, MountPath: execFolder}
	p.add("/spec/initContainers/1", &corev1.Container{
		Name: execContainer, Image: agent.Image, Args: []string{"install", execBinary},
		Resources: agent.Resources, SecurityContext: agent.SecurityContext, VolumeMounts: []corev1.VolumeMount{mount},
	})
	c := &pod.Spec.Containers[e.index]
	at := fmt.Sprintf("/spec/containers/%d", e.index)
	p.add(at+"/command", append([]string{execBinary, "exec", "--group", e.group, "--"}, c.Command...))
	mount.ReadOnly = true
	p.addMount(at, c, mount)
}
