// Package netpolicy decides whether NetworkPolicies permit a connection between pods. It is pure,
// and follows the semantics of networking.k8s.io/v1:
//
//   - A policy selects pods of its namespace. Pods that no policy selects for a direction accept
//     everything in that direction.
//   - Policies add up: a connection is permitted if a rule of any policy that selects the pod
//     admits it. Both ends must permit it, the one for ingress and the other for egress.
//
// # What is not guaranteed
//
// Network plugins differ: some don't enforce policies, or don't apply ipBlock to the addresses of
// pods. What can't be known, such as the labels of a namespace that the user may not read, counts
// as admitted. So a connection that is said to be blocked is blocked where policies are enforced.
package netpolicy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Endpoint is an end of a connection.
type Endpoint struct {
	Namespace string
	// NamespaceLabels is nil if they are unknown.
	NamespaceLabels map[string]string
	Labels          map[string]string
	// IP is "" if it is unknown.
	IP string
	// Ports have the names that policies can use.
	Ports []corev1.ContainerPort
}

// Connection is a TCP connection.
type Connection struct {
	From, To Endpoint
	Port     int32
}

// Blocking returns the names of the policies that block a connection in a direction, sorted: those
// that select its end, if no rule of them admits it.
func Blocking(policies []networkingv1.NetworkPolicy, direction networkingv1.PolicyType, c *Connection) []string {
	subject, peer := &c.To, &c.From
	if direction == networkingv1.PolicyTypeEgress {
		subject, peer = peer, subject
	}
	var isolating []string
	for i := range policies {
		p := &policies[i]
		if p.Namespace != subject.Namespace || !matches(&p.Spec.PodSelector, subject.Labels) || !affects(p, direction) {
			continue
		}
		if slices.ContainsFunc(rulesOf(p, direction), func(r rule) bool { return r.admits(p, peer, c) }) {
			return nil
		}
		isolating = append(isolating, p.Name)
	}
	slices.Sort(isolating)
	return isolating
}

// affects reports whether a policy restricts a direction. The API server sets policyTypes like this.
func affects(p *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(p.Spec.PolicyTypes) > 0 {
		return slices.Contains(p.Spec.PolicyTypes, direction)
	}
	return direction == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
}

// rule is a rule for ingress or egress.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func rulesOf(p *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) (all []rule) {
	if direction == networkingv1.PolicyTypeEgress {
		for _, r := range p.Spec.Egress {
			all = append(all, rule{r.To, r.Ports})
		}
		return all
	}
	for _, r := range p.Spec.Ingress {
		all = append(all, rule{r.From, r.Ports})
	}
	return all
}

// admits reports whether the rule admits a peer and the port. An empty list admits all.
func (r rule) admits(p *networkingv1.NetworkPolicy, peer *Endpoint, c *Connection) bool {
	port := len(r.ports) == 0 || slices.ContainsFunc(r.ports, func(port networkingv1.NetworkPolicyPort) bool { return admitsPort(&port, c) })
	from := len(r.peers) == 0 || slices.ContainsFunc(r.peers, func(rule networkingv1.NetworkPolicyPeer) bool { return admitsPeer(&rule, p.Namespace, peer) })
	return port && from
}

func admitsPort(port *networkingv1.NetworkPolicyPort, c *Connection) bool {
	if port.Protocol != nil && *port.Protocol != corev1.ProtocolTCP {
		return false
	}
	switch {
	case port.Port == nil:
		return true
	case port.Port.Type == intstr.String: // The name of a port of the pod that is connected to.
		return slices.ContainsFunc(c.To.Ports, func(named corev1.ContainerPort) bool {
			return named.Name == port.Port.StrVal && named.ContainerPort == c.Port && (named.Protocol == "" || named.Protocol == corev1.ProtocolTCP)
		})
	case port.EndPort != nil:
		return port.Port.IntVal <= c.Port && c.Port <= *port.EndPort
	}
	return port.Port.IntVal == c.Port
}

func admitsPeer(peer *networkingv1.NetworkPolicyPeer, namespace string, e *Endpoint) bool {
	switch {
	case peer.IPBlock != nil:
		return contains(peer.IPBlock, e.IP)
	case peer.NamespaceSelector != nil:
		return matchesNamespace(peer.NamespaceSelector, e) && (peer.PodSelector == nil || matches(peer.PodSelector, e.Labels))
	case peer.PodSelector != nil:
		return e.Namespace == namespace && matches(peer.PodSelector, e.Labels)
	}
	return false
}

func contains(block *networkingv1.IPBlock, ip string) bool {
	address, err := netip.ParseAddr(ip)
	if err != nil {
		return true // It is unknown.
	}
	inside := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		return err == nil && prefix.Contains(address)
	}
	return inside(block.CIDR) && !slices.ContainsFunc(block.Except, inside)
}

// matchesNamespace reports whether a selector matches the namespace of an endpoint. Of an unknown
// namespace only the label with its name is known, which the API server sets.
func matchesNamespace(selector *metav1.LabelSelector, e *Endpoint) bool {
	if e.NamespaceLabels != nil {
		return matches(selector, e.NamespaceLabels)
	}
	known := metav1.LabelSelector{MatchLabels: map[string]string{}}
	for key, value := range selector.MatchLabels {
		if key == corev1.LabelMetadataName {
			known.MatchLabels[key] = value
		}
	}
	for _, expression := range selector.MatchExpressions {
		if expression.Key == corev1.LabelMetadataName {
			known.MatchExpressions = append(known.MatchExpressions, expression)
		}
	}
	return matches(&known, map[string]string{corev1.LabelMetadataName: e.Namespace})
}

func matches(selector *metav1.LabelSelector, have map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(have)) // The API server rejects invalid ones.
}
