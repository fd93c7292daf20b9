// Package policyrules translates NetworkPolicies into rules of nftables. With them, a test can enforce policies on
// nodes whose network plugin doesn't: the plugins that do aren't available as Go modules or Debian packages.
package policyrules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Table is the table of nftables that has the rules.
const Table = "inet conclave-policies"

// Cluster has the objects that determine the rules.
type Cluster struct {
	Policies   []networkingv1.NetworkPolicy
	Pods       []corev1.Pod
	Namespaces []corev1.Namespace
}

// Rules returns the input of nft that replaces the table. The rules are the same for all nodes: a node applies them to
// the packets that it routes from or to its pods. What a node itself sends to its pods, such as the probes of the
// kubelet, isn't restricted. Unlike most network plugins, the rules apply to open connections, too.
func Rules(c *Cluster) (string, error) {
	var jumps, chains strings.Builder
	for i := range c.Pods {
		for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
			pod := &c.Pods[i]
			rules, isolated, err := c.rulesOf(pod, direction)
			if err != nil {
				return "", fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			if !isolated {
				continue
			}
			own, name := "daddr", fmt.Sprintf("%s-%d", strings.ToLower(string(direction)), i)
			if direction == networkingv1.PolicyTypeEgress {
				own = "saddr"
			}
			fmt.Fprintf(&jumps, "\t\tip %s %s jump %s\n", own, pod.Status.PodIP, name)
			fmt.Fprintf(&chains, "\tchain %s {\n%s\t\tcounter drop\n\t}\n", name, rules)
		}
	}
	return fmt.Sprintf("table %[1]s\ndelete table %[1]s\ntable %[1]s {\n%[2]s\tchain forward {\n"+
		"\t\ttype filter hook forward priority filter\n\t\tct direction reply accept\n%[3]s\t}\n}\n", Table,
		chains.String(), jumps.String()), nil
}

// rulesOf returns the rules that admit packets of a pod in a direction, and whether any policy isolates the pod.
func (c *Cluster) rulesOf(pod *corev1.Pod, direction networkingv1.PolicyType) (rules string, isolated bool, err error) {
	if !hasAddress(pod) {
		return "", false, nil
	}
	for i := range c.Policies {
		policy := &c.Policies[i]
		if policy.Namespace != pod.Namespace || !matches(&policy.Spec.PodSelector, pod.Labels) ||
			!slices.Contains(policy.Spec.PolicyTypes, direction) {
			continue
		}
		isolated = true
		admitted, err := c.admitted(policy, pod, direction)
		if err != nil {
			return "", false, fmt.Errorf("NetworkPolicy %s: %w", policy.Name, err)
		}
		rules += admitted
	}
	return rules, isolated, nil
}

// rule is a rule for ingress or egress.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// admitted returns the rules that admit what a policy admits.
func (c *Cluster) admitted(policy *networkingv1.NetworkPolicy, pod *corev1.Pod,
	direction networkingv1.PolicyType,
) (rules string, err error) {
	other := "saddr"
	var all []rule
	for _, r := range policy.Spec.Ingress {
		all = append(all, rule{r.From, r.Ports})
	}
	if direction == networkingv1.PolicyTypeEgress {
		other, all = "daddr", nil
		for _, r := range policy.Spec.Egress {
			all = append(all, rule{r.To, r.Ports})
		}
	}
	for _, r := range all {
		addresses, err := c.addresses(policy.Namespace, r.peers)
		if err != nil {
			return "", err
		}
		ports, err := portsOf(r.ports, pod, direction)
		if err != nil {
			return "", err
		}
		from := ""
		switch {
		case len(r.peers) > 0 && len(addresses) == 0:
			continue // nft has no empty sets.
		case len(r.peers) > 0:
			from = fmt.Sprintf("ip %s { %s } ", other, strings.Join(addresses, ", "))
		}
		for _, port := range ports {
			rules += "\t\t" + from + port + "return\n"
		}
	}
	return rules, nil
}

// portsOf returns the matches for ports. No ports stand for all.
func portsOf(ports []networkingv1.NetworkPolicyPort, pod *corev1.Pod,
	direction networkingv1.PolicyType,
) ([]string, error) {
	if len(ports) == 0 {
		return []string{""}, nil
	}
	var all []string
	for i := range ports {
		port, err := portOf(&ports[i], pod, direction)
		if err != nil {
			return nil, err
		}
		all = append(all, port+" ")
	}
	return all, nil
}

// portOf returns the match for a port. The name of a port is that of the pod for ingress. (For egress it would be that
// of each peer.)
func portOf(port *networkingv1.NetworkPolicyPort, pod *corev1.Pod, direction networkingv1.PolicyType) (string, error) {
	protocol := corev1.ProtocolTCP
	if port.Protocol != nil {
		protocol = *port.Protocol
	}
	switch {
	case port.Port == nil || port.EndPort != nil ||
		port.Port.Type == intstr.String && direction == networkingv1.PolicyTypeEgress:
		return "", fmt.Errorf("ports must be numbers or, for ingress, names, got %v", port)
	case port.Port.Type == intstr.Int:
		return fmt.Sprintf("%s dport %d", strings.ToLower(string(protocol)), port.Port.IntVal), nil
	}
	for _, container := range pod.Spec.Containers {
		for _, named := range container.Ports {
			if named.Name == port.Port.StrVal && cmp.Or(named.Protocol, corev1.ProtocolTCP) == protocol {
				return fmt.Sprintf("%s dport %d", strings.ToLower(string(protocol)), named.ContainerPort), nil
			}
		}
	}
	return "", fmt.Errorf("the pod has no port %q", port.Port.StrVal)
}

// addresses returns the addresses of the pods that peers select, sorted.
func (c *Cluster) addresses(namespace string, peers []networkingv1.NetworkPolicyPeer) ([]string, error) {
	var found []string
	for i := range peers {
		peer := &peers[i]
		if peer.IPBlock != nil {
			return nil, fmt.Errorf("ipBlock isn't supported, got %v", peer.IPBlock)
		}
		for j := range c.Pods {
			pod := &c.Pods[j]
			if hasAddress(pod) && c.selects(peer, namespace, pod) {
				found = append(found, pod.Status.PodIP)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// selects reports whether a peer of a policy selects a pod.
func (c *Cluster) selects(peer *networkingv1.NetworkPolicyPeer, namespace string, pod *corev1.Pod) bool {
	if peer.NamespaceSelector == nil && pod.Namespace != namespace {
		return false
	}
	if peer.NamespaceSelector != nil && !slices.ContainsFunc(c.Namespaces, func(n corev1.Namespace) bool {
		return n.Name == pod.Namespace && matches(peer.NamespaceSelector, n.Labels)
	}) {
		return false
	}
	return peer.PodSelector == nil || matches(peer.PodSelector, pod.Labels)
}

func matches(selector *metav1.LabelSelector, have map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(have)) // The API server rejects invalid ones.
}

// hasAddress reports whether a pod has an address of its own.
func hasAddress(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return pod.Status.PodIP != "" && !pod.Spec.HostNetwork && !ended
}
