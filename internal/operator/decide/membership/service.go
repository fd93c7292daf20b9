package membership

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// conflictRecheck is how often a plan checks whether the name of another owner's object has become free: the cache
// leaves out objects of others, so no watch reports their deletion.
const conflictRecheck = 30 * time.Second

// planService plans the Service.
func (p *Plan) planService(f *planner) {
	if f.Group.Spec.Service != nil {
		p.planWantedService(f, f.Group.Spec.Service.Name)
	}
	if p.ServiceProblem != nil && f.ServicesPermitted {
		p.RequeueAt = facts.Earliest(p.RequeueAt, f.Now.Add(conflictRecheck))
	}
	if f.Errors.ServicesDenied && p.ServiceProblem == nil {
		p.ServiceProblem = &Problem{v1.ReasonServicesForbidden, "The operator lacks a permission, so a Service that exists " +
			"may point at a former coordinator: " + f.Errors.Routing}
	}
}

func (p *Plan) planWantedService(f *planner, name string) {
	switch {
	case f.ServicesForbidden:
		p.ServiceProblem = &Problem{v1.ReasonServicesForbidden, "The operator lacks the permission for Services, so a " +
			"Service that exists may point at a former coordinator: " +
			"grant the permission as in docs/install.md, or remove spec.service and delete the Service"}
	case f.Service != nil && OwnedByOther(f.Service, f.Group):
		p.ServiceProblem = &Problem{v1.ReasonServiceConflict, conflict("Service", f.Service, f.Group)}
	case f.Service != nil && len(f.Service.Spec.Selector) > 0:
		// Kubernetes creates EndpointSlices for it, and doesn't delete them when the selector is removed. So it remains
		// unchanged. If the group owns an EndpointSlice of it, from before it had a selector, that follows the coordinator.
		p.KeptService = name
		p.WritesEndpointSlice = f.EndpointSlice != nil && metav1.IsControlledBy(f.EndpointSlice, f.Group)
		p.ServiceProblem = &Problem{v1.ReasonServiceConflict, fmt.Sprintf(
			"Service %s has a selector, so it points at all pods that match: "+
				"change spec.service.name, or delete the Service, and the operator creates it without a selector", name)}
	default:
		p.Service, p.KeptService = wantedService(f.Group), name
		p.WritesEndpointSlice = f.EndpointSlice == nil || !OwnedByOther(f.EndpointSlice, f.Group)
		if !p.WritesEndpointSlice {
			p.ServiceProblem = &Problem{v1.ReasonServiceConflict, conflict("EndpointSlice", f.EndpointSlice, f.Group)}
		}
	}
}

// conflict says why an object isn't the group's.
func conflict(kind string, object metav1.Object, group *v1.ElectionGroup) string {
	why := "has another owner"
	if metav1.GetControllerOfNoCopy(object) == nil {
		why = fmt.Sprintf("does not belong to this group, because it has no label %s: %s", v1.LabelGroup, group.Name)
	}
	return fmt.Sprintf("%s %s %s: change spec.service.name, or delete the %[1]s", kind, object.GetName(), why)
}

// wantedService returns the Service of a group that wants one.
func wantedService(group *v1.ElectionGroup) *corev1.Service {
	want := group.Spec.Service
	s := &corev1.Service{ObjectMeta: ownedMeta(group, want.Name)}
	s.Spec.PublishNotReadyAddresses = want.Routing == v1.RouteAlways
	if want.Type == v1.Headless {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for i, p := range want.Ports {
		target := targetPort(p)
		if want.Via == v1.ViaAgents {
			target = intstr.FromInt32(agentPort(want, i))
		}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Port: p.Port, TargetPort: target, Protocol: protocol(p), AppProtocol: appProtocol(p),
		})
	}
	return s
}

// agentPort returns on which port agents listen for a port of the Service.
func agentPort(of *v1.CoordinatorService, index int) int32 {
	return cmp.Or(of.Ports[index].AgentPort, control.ServicePort1+int32(index)) //nolint:gosec // at most 32
}

// agentService returns what agents carry, nil if they carry nothing.
func agentService(of *v1.CoordinatorService) *control.Service {
	if of == nil || of.Via != v1.ViaAgents {
		return nil
	}
	s := &control.Service{
		WaitMillis: of.WaitMillis, Connections: string(of.Connections), ProxyProtocol: string(of.ProxyProtocol),
	}
	for i, p := range of.Ports {
		application := uint16(targetPort(p).IntVal) //nolint:gosec // a port
		s.Ports = append(s.Ports, control.ServicePort{Listen: fmt.Sprintf(":%d", agentPort(of, i)), Port: application})
	}
	return s
}

func targetPort(p v1.ServicePort) intstr.IntOrString {
	return *cmp.Or(p.TargetPort, new(intstr.FromInt32(p.Port)))
}

func appProtocol(p v1.ServicePort) *string {
	if p.AppProtocol == "" {
		return nil
	}
	return &p.AppProtocol
}

func protocol(p v1.ServicePort) corev1.Protocol { return corev1.Protocol(cmp.Or(p.Protocol, v1.TCP)) }

// EndpointSliceName returns the name of the EndpointSlice of a group that wants a Service.
func EndpointSliceName(group *v1.ElectionGroup) string { return group.Spec.Service.Name + "-conclave" }

// Endpoints returns the pods at which the Service points. A pod whose agent carries connections remains until the
// operator has lost that agent, or all others don't hear it any more. If the operator has lost all, it may be the one
// that is cut off, so nothing changes.
func Endpoints(f *facts.Facts, coordinator string) (all []*corev1.Pod) {
	if f.Group.Spec.Service.Via != v1.ViaAgents {
		return []*corev1.Pod{f.Pods[coordinator]}
	}
	listed := map[types.UID]bool{}
	if f.EndpointSlice != nil {
		for _, e := range f.EndpointSlice.Endpoints {
			if e.TargetRef != nil {
				listed[e.TargetRef.UID] = true
			}
		}
	}
	lostAll := true
	for name, pod := range f.Pods {
		lostAll = lostAll && (pod.DeletionTimestamp != nil || !carries(f, name))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Pods)) {
		agent, pod := f.Agents[name], f.Pods[name]
		uncertain := lostAll || !agent.Connected && agent.Problem == ""
		if pod.DeletionTimestamp == nil && (carries(f, name) || uncertain && listed[pod.UID]) {
			all = append(all, pod)
		}
	}
	silent := func(p *corev1.Pod) bool { return isSilent(f, p.Name) }
	if heard := slices.DeleteFunc(slices.Clone(all), silent); len(heard) > 0 && !lostAll {
		return heard
	}
	return all
}

// isSilent reports whether all other agents that carry connections have lost a pod's agent. If it is frozen, or its
// node is lost, the operator's own connection with it lasts for some seconds longer.
func isSilent(f *facts.Facts, pod string) (silent bool) {
	lost := func(row control.Row) bool { return row.Name == pod && row.Status == string(v1.ProcessCrashed) }
	for name := range f.Pods {
		switch {
		case name == pod || !carries(f, name):
		case !slices.ContainsFunc(f.Report(name).Processes, lost):
			return false
		default:
			silent = true
		}
	}
	return silent
}

// carries reports whether the agent of a pod carries connections. That of a witness is in another namespace.
func carries(f *facts.Facts, pod string) bool {
	return !v1.IsWitness(pod) && f.Accepts(pod) && f.Report(pod) != nil
}

// EndpointSlice returns the EndpointSlice that points the group's Service, nil before it exists, at the pod
// of the coordinator, or at those whose agents carry connections. It leaves out those that are nil.
//
// The address type of an EndpointSlice is immutable: an existing slice with another type has to be deleted first.
// Without an endpoint, the type has no meaning, so an existing slice of the other type can remain.
func EndpointSlice(group *v1.ElectionGroup, service *corev1.Service,
	pods ...*corev1.Pod,
) *discoveryv1.EndpointSlice {
	want := group.Spec.Service
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: ownedMeta(group, EndpointSliceName(group)), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{},
	}
	slice.Labels[discoveryv1.LabelServiceName] = want.Name
	slice.Labels[discoveryv1.LabelManagedBy] = v1.GroupVersion.Group
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p == nil })
	for i, p := range want.Ports {
		number, ok := agentPort(want, i), true
		if want.Via != v1.ViaAgents {
			number, ok = portNumber(p, pods)
		}
		if ok {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: new(p.Name), Port: &number, Protocol: new(protocol(p)), AppProtocol: appProtocol(p),
			})
		}
	}
	for _, pod := range pods {
		ip, err := netip.ParseAddr(podIP(pod, service))
		if err != nil {
			continue // The pod has no address yet, or no longer has one.
		}
		family := discoveryv1.AddressTypeIPv4
		if ip.Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		if len(slice.Endpoints) > 0 && family != slice.AddressType {
			continue
		}
		slice.AddressType = family
		endpoint := discoveryv1.Endpoint{
			Addresses:  []string{ip.String()},
			Conditions: endpointConditions(want, pod),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if pod.Spec.NodeName != "" {
			endpoint.NodeName = new(pod.Spec.NodeName)
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

// podIP returns the address of a pod of the family that a Service has first. Such a Service ignores the others.
func podIP(pod *corev1.Pod, service *corev1.Service) string {
	if service != nil && len(service.Spec.IPFamilies) > 0 {
		isIPv6 := service.Spec.IPFamilies[0] == corev1.IPv6Protocol
		for _, address := range pod.Status.PodIPs {
			if strings.Contains(address.IP, ":") == isIPv6 {
				return address.IP
			}
		}
	}
	return pod.Status.PodIP
}

// endpointConditions returns what Kubernetes itself reports about the pods of a Service, but not that the pod is being
// deleted: it hands over soon, and without another endpoint, kube-proxy routes to it meanwhile anyway. It would delay
// the next coordinator, see the reconciler's vacancyMax. An agent carries connections also while its pod isn't ready.
func endpointConditions(service *v1.CoordinatorService, pod *corev1.Pod) discoveryv1.EndpointConditions {
	serving := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	serving = serving || service.Via == v1.ViaAgents
	ready := service.Routing == v1.RouteAlways || serving
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving}
}

// portNumber returns the number of a port in the coordinator's pod, if there is one. A name may be that of no
// container's port.
func portNumber(p v1.ServicePort, pods []*corev1.Pod) (number int32, ok bool) {
	target := targetPort(p)
	if target.Type == intstr.Int {
		return target.IntVal, true
	}
	if len(pods) == 0 {
		return 0, false
	}
	for _, c := range slices.Concat(pods[0].Spec.Containers, pods[0].Spec.InitContainers) {
		for _, port := range c.Ports {
			if port.Name == target.StrVal && cmp.Or(port.Protocol, corev1.ProtocolTCP) == protocol(p) {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}

// MissingPorts returns the names of the Service's target ports that no container of a pod has.
func MissingPorts(group *v1.ElectionGroup, pod *corev1.Pod) (names []string) {
	for _, p := range group.Spec.Service.Ports {
		if _, ok := portNumber(p, []*corev1.Pod{pod}); !ok {
			names = append(names, p.TargetPort.StrVal)
		}
	}
	return names
}
