package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/plugin/check/netpolicy"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// checkPolicies finds NetworkPolicies that block the connections that agents need.
func checkPolicies(f *Facts) []Finding {
	if f.Unknown[Groups] != "" || f.Unknown[Pods] != "" || len(f.Policies) == 0 {
		return nil
	}
	var all []Finding
	for i := range f.Groups {
		if g := &f.Groups[i]; f.Group == "" || g.Name == f.Group {
			all = append(all, checkGroupPolicies(f, g)...)
		}
	}
	if len(all) == 0 {
		all = append(all, Finding{Level: OK, Object: "network policies", Message: "None blocks the connections of agents."})
	}
	return all
}

// checkGroupPolicies checks the connections between the members of a group, and those between
// them and the operator.
func checkGroupPolicies(f *Facts, g *v1.ElectionGroup) []Finding {
	if g.Status.MemberList == nil {
		return nil
	}
	var members []*corev1.Pod
	for i := range f.Pods {
		p := &f.Pods[i]
		member := slices.ContainsFunc(g.Status.MemberList.Members, func(m v1.Member) bool { return m.Pod == p.Name })
		// Policies don't apply to pods on the network of their node.
		if p.Namespace == g.Namespace && member && membership.HasAgent(p) && !p.Spec.HostNetwork {
			members = append(members, p)
		}
	}
	all := checkPoliciesOfOperator(f, g, members)
	for _, p := range members {
		in, out := blockedPeers{}, blockedPeers{}
		for _, other := range members {
			if other != p {
				in.check(f, networkingv1.PolicyTypeIngress, other.Name, &netpolicy.Connection{From: f.endpoint(other), To: f.endpoint(p), Port: control.PeerPort})
				out.check(f, networkingv1.PolicyTypeEgress, other.Name, &netpolicy.Connection{From: f.endpoint(p), To: f.endpoint(other), Port: control.PeerPort})
			}
		}
		object := "pod " + p.Namespace + "/" + p.Name
		if len(in.names) > 0 {
			all = append(all, blockedIngress(object, in.policies, in.describe(g, len(members)-1), control.PeerPort))
		}
		if len(out.names) > 0 {
			all = append(all, blockedEgress(object, out.policies, out.describe(g, len(members)-1), control.PeerPort))
		}
		all = append(all, checkOperatorPolicies(f, object, f.endpoint(p))...)
	}
	return all
}

// checkOperatorPolicies finds policies of a member that block connections between it and the
// operator.
func checkOperatorPolicies(f *Facts, object string, agent netpolicy.Endpoint) (all []Finding) {
	o := f.operatorOf(agent.Namespace)
	if o == nil {
		return nil
	}
	operator, identity := f.operatorEndpoint(o)
	who := "the operator in namespace " + o.Namespace
	if by := netpolicy.Blocking(f.Policies, networkingv1.PolicyTypeIngress, &netpolicy.Connection{From: operator, To: agent, Port: control.OperatorPort}); len(by) > 0 {
		all = append(all, blockedIngress(object, by, who, control.OperatorPort))
	}
	if by := netpolicy.Blocking(f.Policies, networkingv1.PolicyTypeEgress, &netpolicy.Connection{From: agent, To: operator, Port: identity}); len(by) > 0 {
		all = append(all, blockedEgress(object, by, who, identity))
	}
	return all
}

// checkPoliciesOfOperator finds policies of the operator that block connections between it and the
// members of a group.
func checkPoliciesOfOperator(f *Facts, g *v1.ElectionGroup, members []*corev1.Pod) (all []Finding) {
	o := f.operatorOf(g.Namespace)
	if o == nil || o.Template.Spec.HostNetwork {
		return nil
	}
	operator, identity := f.operatorEndpoint(o)
	in, out := blockedPeers{}, blockedPeers{}
	for _, p := range members {
		agent := f.endpoint(p)
		in.check(f, networkingv1.PolicyTypeIngress, p.Name, &netpolicy.Connection{From: agent, To: operator, Port: identity})
		out.check(f, networkingv1.PolicyTypeEgress, p.Name, &netpolicy.Connection{From: operator, To: agent, Port: control.OperatorPort})
	}
	object := "operator in namespace " + o.Namespace
	who := fmt.Sprintf("the agents of group %s/%s", g.Namespace, g.Name)
	if len(in.names) > 0 {
		all = append(all, blockedIngress(object, in.policies, who, identity))
	}
	if len(out.names) > 0 {
		all = append(all, blockedEgress(object, out.policies, who, control.OperatorPort))
	}
	return all
}

// operatorEndpoint returns the operator's pods, and the port of their identity service.
func (f *Facts) operatorEndpoint(o *Operator) (netpolicy.Endpoint, int32) {
	identity := int32(identityPort)
	ports := portsOf(&o.Template.Spec)
	for _, port := range ports {
		if port.Name == identityPortName {
			identity = port.ContainerPort
		}
	}
	return netpolicy.Endpoint{Namespace: o.Namespace, NamespaceLabels: f.Namespaces[o.Namespace], Labels: o.Template.Labels, Ports: ports}, identity
}

// identityPort is the default port of the identity service in the operator's pods, and
// identityPortName its name.
const (
	identityPort     = 9444
	identityPortName = "identity"
)

func (f *Facts) endpoint(p *corev1.Pod) netpolicy.Endpoint {
	return netpolicy.Endpoint{Namespace: p.Namespace, NamespaceLabels: f.Namespaces[p.Namespace], Labels: p.Labels, IP: p.Status.PodIP, Ports: portsOf(&p.Spec)}
}

func portsOf(spec *corev1.PodSpec) (ports []corev1.ContainerPort) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			ports = append(ports, containers[i].Ports...)
		}
	}
	return ports
}

// blockedPeers are the members with which connections are blocked, and by which policies.
type blockedPeers struct{ names, policies []string }

func (b *blockedPeers) check(f *Facts, direction networkingv1.PolicyType, peer string, c *netpolicy.Connection) {
	by := netpolicy.Blocking(f.Policies, direction, c)
	if len(by) == 0 {
		return
	}
	b.names = append(b.names, peer)
	b.policies = by // The same for all: those that select the pod.
}

// describe names the members, so that findings about several pods are equal if all are blocked.
func (b *blockedPeers) describe(g *v1.ElectionGroup, others int) string {
	const shown = 3
	switch {
	case len(b.names) == others:
		return "the other members of " + g.Name
	case len(b.names) > shown:
		return fmt.Sprintf("%s and %d more", strings.Join(b.names[:shown], ", "), len(b.names)-shown)
	}
	return strings.Join(b.names, ", ")
}

const policyAdvice = "Add the policy in docs/install.md, Network policies: policies are additive."

func blockedIngress(object string, policies []string, peers string, port int32) Finding {
	return Finding{Problem, object, fmt.Sprintf("%s its TCP port %d: no ingress rule admits %s.", namePolicies(policies), port, peers), policyAdvice}
}

func blockedEgress(object string, policies []string, peers string, port int32) Finding {
	return Finding{Problem, object, fmt.Sprintf("%s its connections to TCP port %d: no egress rule admits %s.", namePolicies(policies), port, peers), policyAdvice}
}

func namePolicies(names []string) string {
	if len(names) == 1 {
		return "The NetworkPolicy " + names[0] + " blocks"
	}
	return "The NetworkPolicies " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " block"
}
