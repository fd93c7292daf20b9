package inject

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// The volumes that a patch adds, and their mount paths in the agent.
const (
	configVolume = "conclave"
	stateVolume  = "conclave-state"
	socketVolume = "conclave-api"
	configFolder = "/etc/conclave"
	stateFolder  = "/var/lib/conclave"
	socketFolder = "/run/conclave"

	// tokenPath is the path of the service account token in the configuration
	// volume, and tokenSeconds its validity. The kubelet renews it.
	tokenPath    = "token"
	tokenSeconds = 3600
	// selectedPath is the path, in the same volume, of the list of groups that select the pod.
	selectedPath = "selected-by"
)

// container returns the agent's container: a native sidecar, which is an init container that keeps running. It starts
// before all other containers and stops after them.
func container(s Settings, part participation, p *podSpec) (*corev1.Container, error) {
	options := layers{s.Options, part.options}
	required, err := options.requirements(p.guaranteed(), v1.AnnotationAgentPrefix)
	if err != nil {
		return nil, fmt.Errorf("annotation %w", err)
	}
	p.addEphemeralStorage(&required)
	peers := corev1.ContainerPort{Name: "conclave-peers", ContainerPort: control.PeerPort, Protocol: corev1.ProtocolTCP}
	operator := corev1.ContainerPort{
		Name: "conclave-op", ContainerPort: control.OperatorPort, Protocol: corev1.ProtocolTCP,
	}
	hostNetwork := p.Spec.HostNetwork
	if hostNetwork {
		// With hostNetwork, the API server requires both ports to be equal, and the
		// scheduler avoids nodes where the port is in use.
		peers.HostPort, operator.HostPort = peers.ContainerPort, operator.ContainerPort
	}
	agent := &corev1.Container{
		Name:          v1.AgentContainer,
		Image:         s.AgentImage,
		Args:          []string{"pod"},
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Env:           environment(s, part),
		Ports:         []corev1.ContainerPort{peers, operator},
		Resources:     required,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			RunAsNonRoot:             new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: configVolume, MountPath: configFolder, ReadOnly: true},
			{Name: stateVolume, MountPath: stateFolder},
		},
	}
	if level, _ := options.value(optionLogLevel); level != defaultLogLevel {
		agent.Env = append(agent.Env, corev1.EnvVar{Name: "CONCLAVE_LOG_LEVEL", Value: level})
	}
	if uid, _ := options.value(optionUID); uid != inheritUID {
		agent.SecurityContext.RunAsUser, agent.SecurityContext.RunAsGroup = new(userID(uid)), new(userID(uid))
	} else if user := p.user(); user != nil && *user == 0 {
		return nil,
			fmt.Errorf("the agent must not run as root, and inherits the user 0 of the pod: set the annotation %s to a user ID",
				v1.AnnotationAgentPrefix+optionUID)
	}
	if hostNetwork {
		agent.Env = append(agent.Env, p.socketEnvironment()...)
		agent.VolumeMounts = append(agent.VolumeMounts, corev1.VolumeMount{Name: socketVolume, MountPath: socketFolder})
	}
	return agent, nil
}

func environment(s Settings, part participation) []corev1.EnvVar {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{
			Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}},
		}
	}
	groups := corev1.EnvVar{Name: "CONCLAVE_GROUPS", Value: strings.Join(part.groups, ",")}
	if part.selected {
		groups = corev1.EnvVar{Name: "CONCLAVE_GROUPS_FILE", Value: configFolder + "/" + selectedPath}
	}
	env := []corev1.EnvVar{
		field("POD_NAME", "metadata.name"),
		field("POD_NAMESPACE", "metadata.namespace"),
		field("POD_IP", "status.podIP"),
		groups,
		{Name: "CONCLAVE_IDENTITY", Value: s.IdentityURL},
		{Name: "CONCLAVE_CA", Value: s.CABundle},
	}
	if part.probe != "" {
		// Escape the $, because the kubelet expands $(NAME).
		env = append(env, corev1.EnvVar{Name: "CONCLAVE_PROBE", Value: strings.ReplaceAll(part.probe, "$", "$$")})
	}
	return env
}

// volumes returns the volumes for the agent's token and its state. The list of groups that
// select the pod is a file, because it may change while the pod runs.
func volumes(part participation, hostNetwork bool) []corev1.Volume {
	sources := []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
		Audience: v1.TokenAudience, ExpirationSeconds: new(int64(tokenSeconds)), Path: tokenPath,
	}}}
	if part.selected {
		sources = append(sources,
			corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     selectedPath,
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + v1.AnnotationSelectedBy + "']"},
			}}}})
	}
	emptyDir := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	all := []corev1.Volume{
		{Name: configVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}},
		{Name: stateVolume, VolumeSource: emptyDir},
	}
	if hostNetwork {
		all = append(all, corev1.Volume{Name: socketVolume, VolumeSource: emptyDir})
	}
	if part.exec != nil {
		all = append(all, corev1.Volume{Name: execVolume, VolumeSource: emptyDir})
	}
	return all
}
