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
	for _, containers := range [][]existingContainer{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			uid := cmp.Or(c.SecurityContext.RunAsUser, p.Spec.SecurityContext.RunAsUser)
			if uid == nil {
				return env // The image decides.
			}
			if text := strconv.FormatInt(*uid, 10); !slices.Contains(uids, text) {
				uids = append(uids, text)
			}
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

func (p *patch) addSocketTo(container string, c *existingContainer) {
	p.addMount(container, c, corev1.VolumeMount{Name: socketVolume, MountPath: socketFolder, ReadOnly: true})
	variable := corev1.EnvVar{Name: agentVariable, Value: socketURL}
	for _, existing := range c.Env {
		if existing.Name == agentVariable {
			return
		}
	}
	if c.Env == nil {
		p.add(container+"/env", []corev1.EnvVar{variable})
	} else {
		p.add(container+"/env/-", variable)
	}
}

// checkMounts refuses a pod that mounts another volume where the socket will be.
func (p *podSpec) checkMounts() error {
	if !p.Spec.HostNetwork {
		return nil
	}
	for _, containers := range [][]existingContainer{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			for _, m := range c.VolumeMounts {
				if path.Clean(m.MountPath) == socketFolder {
					return fmt.Errorf("container %s mounts a volume at %s: use another path, because the agent's socket is there",
						c.Name, socketFolder)
				}
			}
		}
	}
	return nil
}
