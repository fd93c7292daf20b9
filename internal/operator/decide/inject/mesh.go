package inject

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// A proxy of a service mesh accepts connections on behalf of a process, also when that has ended. Agents find out that
// a process has ended because its port refuses connections, and authenticate each other without a proxy. So the
// annotations of a pod exclude the agent's ports from what its proxy intercepts.
//
// A patch adds them whether or not the pod is in a mesh: whether it will be depends on
// labels of its namespace and on webhooks that run later.
var (
	inboundPorts  = []int{control.PeerPort, control.OperatorPort}
	outboundPorts = []int{control.PeerPort}
)

// mesh is a service mesh.
type mesh struct {
	// inbound and outbound are the annotations with the ports that its proxy doesn't
	// intercept. They replace the defaults of the mesh.
	inbound, outbound string
	// containers may be in a pod that is in the mesh.
	containers []string
}

var meshes = []mesh{
	{"traffic.sidecar.istio.io/excludeInboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts", []string{
		"istio-proxy", "istio-init",
	}},
	{"config.linkerd.io/skip-inbound-ports", "config.linkerd.io/skip-outbound-ports", []string{
		"linkerd-proxy", "linkerd-init",
	}},
}

// addExclusions excludes the agent's ports in the annotations of a pod, which has some. It
// adds them to ports that the author of the pod has excluded.
func (p *patch) addExclusions(m *podMetadata) {
	for _, mesh := range meshes {
		for _, exclusion := range mesh.exclusions() {
			p.extend(m, exclusion.key, func(before string) string { return withPorts(before, exclusion.ports) })
		}
	}
}

// exclusion is an annotation and the ports that it must have.
type exclusion struct {
	key   string
	ports []int
}

func (m *mesh) exclusions() []exclusion {
	return []exclusion{{m.inbound, inboundPorts}, {m.outbound, outboundPorts}}
}

// withPorts adds ports to a list of ports and ranges, such as 80,8000-8100, unless it has them.
func withPorts(list string, ports []int) string {
	for _, port := range ports {
		if hasPort(list, port) {
			continue
		}
		if list = strings.TrimRight(list, ", "); list != "" {
			list += ","
		}
		list += strconv.Itoa(port)
	}
	return list
}

func hasPort(list string, port int) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(item string) bool {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		low, err := strconv.Atoi(strings.TrimSpace(first))
		high, rangeErr := strconv.Atoi(strings.TrimSpace(last))
		return err == nil && rangeErr == nil && low <= port && port <= high
	})
}

// ambientAnnotation is what Istio writes on a pod whose connections the proxy of its node
// intercepts (ambient mode). No annotation excludes ports from that.
const ambientAnnotation = "ambient.istio.io/redirection"

// Interception describes a proxy that intercepts connections with the agent of a pod, or is "".
func Interception(pod *corev1.Pod) string { return interception(pod, (*mesh).exclusions) }

// InterceptionOf describes a proxy that intercepts connections between the pods of an application to a port, or is "".
func InterceptionOf(pod *corev1.Pod, port int32) string {
	return interception(pod, func(m *mesh) []exclusion {
		return []exclusion{{m.inbound, []int{int(port)}}, {m.outbound, []int{int(port)}}}
	})
}

func interception(pod *corev1.Pod, exclusions func(*mesh) []exclusion) string {
	if pod.Annotations[ambientAnnotation] == "enabled" {
		return "Istio's ambient mode"
	}
	lacks := func(e exclusion) bool { return withPorts(pod.Annotations[e.key], e.ports) != pod.Annotations[e.key] }
	for _, mesh := range meshes {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if slices.Contains(mesh.containers, c.Name) && slices.ContainsFunc(exclusions(&mesh), lacks) {
				return "the container " + c.Name
			}
		}
	}
	return ""
}
