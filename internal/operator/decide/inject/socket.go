package inject

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// On the network of the node, every process of the node could use the local API on a loopback address. There, the API
// is a Unix socket in a volume that only the containers of the pod mount.
const socketURL = "unix://" + socketFolder + "/agent.sock"

// agentVariable is the environment variable in which clients find the agent's address.
const agentVariable = "CONCLAVE_AGENT"

// socketEnvironment returns the agent's environment variables for a Unix socket. If the
// users of all containers are known, the agent accepts no others.
func (p *podSpec) socketEnvironment() []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: "CONCLAVE_API", Value: socketURL}}
	var uids []string
	for _, c := range p.containers() {
		uid := p.user()
		if c.SecurityContext != nil {
			uid = cmp.Or(c.SecurityContext.RunAsUser, uid)
		}
		if uid == nil {
			return env // The image decides.
		}
		if text := strconv.FormatInt(*uid, 10); !slices.Contains(uids, text) {
			uids = append(uids, text)
		}
	}
	return append(env, corev1.EnvVar{Name: "CONCLAVE_API_UIDS", Value: strings.Join(uids, ",")})
}

// addSocket mounts the volume of the socket in all other containers, and tells them the
// agent's address. The mount is read-only, so that no container can replace the socket.
func (p *patch) addSocket(pod *podSpec) {
	for i := range pod.Spec.InitContainers {
		p.addSocketTo(fmt.Sprintf("/spec/initContainers/%d", i+1), &pod.Spec.InitContainers[i]) // The agent is the first one.
	}
	for i := range pod.Spec.Containers {
		p.addSocketTo(fmt.Sprintf("/spec/containers/%d", i), &pod.Spec.Containers[i])
	}
}

func (p *patch) addSocketTo(container string, c *corev1.Container) {
	p.addMount(container, c, corev1.VolumeMount{Name: socketVolume, MountPath: socketFolder, ReadOnly: true})
	variable := corev1.EnvVar{Name: agentVariable, Value: socketURL}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == agentVariable }) {
		p.addItem(container+"/env", c.Env != nil, variable)
	}
}

// mountsAt reports whether a container mounts a volume in a folder.
func mountsAt(c *corev1.Container, folder string) bool {
	return slices.ContainsFunc(c.VolumeMounts,
		func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == folder })
}

// checkMounts refuses a pod that mounts another volume where the socket will be.
func (p *podSpec) checkMounts() error {
	if !p.Spec.HostNetwork {
		return nil
	}
	for _, c := range p.containers() {
		if mountsAt(&c, socketFolder) {
			return fmt.Errorf("container %s mounts a volume at %s: use another path, because the agent's socket is there",
				c.Name, socketFolder)
		}
	}
	return nil
}
