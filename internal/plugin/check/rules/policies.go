package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// checkPolicies names the NetworkPolicies that select the pods of groups whose agents aren't connected, and what
// policies must permit. Whether a policy permits it depends on the network plugin, so this is a hint.
func checkPolicies(f *Facts) (all []Finding) {
	if f.Unknown[Groups] != "" || f.Unknown[Pods] != "" {
		return nil
	}
	for i := range f.Groups {
		if g := &f.Groups[i]; (f.Group == "" || g.Name == f.Group) && disconnected(g) {
			all = append(all, checkGroupPolicies(f, g)...)
		}
	}
	return all
}

// disconnected reports whether the status shows that agents can't reach each other, or the operator can't reach them.
// An agent that neither the operator nor the other agents reach has rather ended, or its node has.
func disconnected(g *v1.ElectionGroup) bool {
	return slices.ContainsFunc(g.Status.Processes, func(p v1.Process) bool {
		crashed := p.Status == v1.ProcessCrashed
		return p.Reason == v1.ProcessDisputed || p.Reason == v1.ProcessUnreachable && !crashed || p.Reason == "" && crashed
	}) && (meta.IsStatusConditionFalse(g.Status.Conditions, string(v1.ConditionAgentsConnected)) ||
		meta.IsStatusConditionFalse(g.Status.Conditions, string(v1.ConditionAvailable)))
}

func checkGroupPolicies(f *Facts, g *v1.ElectionGroup) (all []Finding) {
	o := f.operator()
	identity := identityPort(o)
	if names := f.policiesOf(g.Namespace, "", func(selects labels.Selector) bool {
		return slices.ContainsFunc(f.Pods,
			func(p corev1.Pod) bool { return isAgentOf(g, &p) && selects.Matches(labels.Set(p.Labels)) })
	}); len(names) > 0 {
		all = append(all, policyFinding(fmt.Sprintf("group %s/%s", g.Namespace, g.Name), names,
			fmt.Sprintf("ingress to TCP port %d from the other members and to %d from the operator, and egress to %[1]d of the "+
				"other members and %[3]d of the operator",
				control.PeerPort, control.OperatorPort, identity)+clientPorts(g)))
	}
	if o == nil || o.Template.Spec.HostNetwork || o.Namespace == g.Namespace {
		return all
	}
	// Agents connect to the operator only for certificates: nobody reaches an agent without one.
	if names := f.policiesOf(o.Namespace, networkingv1.PolicyTypeEgress, func(selects labels.Selector) bool {
		return selects.Matches(labels.Set(o.Template.Labels))
	}); len(names) > 0 {
		all = append(all, policyFinding("operator in namespace "+o.Namespace, names,
			fmt.Sprintf("ingress to TCP port %d from agents, and egress to %d of agents", identity, control.OperatorPort)))
	}
	return all
}

// clientPorts completes which ports must be open with those that carry connections of clients.
func clientPorts(g *v1.ElectionGroup) string {
	if g.Spec.Service == nil || g.Spec.Service.Via != v1.ViaAgents {
		return ""
	}
	return "; for spec.service, ingress to its agentPorts from clients, and to its targetPorts from the other members"
}

// isAgentOf reports whether policies apply to a pod of a group. They don't apply to pods on the network of their node.
func isAgentOf(g *v1.ElectionGroup, p *corev1.Pod) bool {
	list := g.Status.Protocol.MemberList
	return p.Namespace == g.Namespace && !p.Spec.HostNetwork && membership.HasAgent(p) && list != nil &&
		slices.ContainsFunc(list.Members, func(m v1.Member) bool { return m.Pod == p.Name })
}

// policiesOf returns the names of the policies of a namespace that select pods and restrict a direction, or "" for any.
func (f *Facts) policiesOf(namespace string, direction networkingv1.PolicyType,
	selectsPods func(labels.Selector) bool,
) (names []string) {
	for i := range f.Policies {
		p := &f.Policies[i]
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		restricts := direction == "" || slices.Contains(p.Spec.PolicyTypes, direction)
		// The API server rejects invalid ones.
		if p.Namespace == namespace && restricts && err == nil && selectsPods(selector) {
			names = append(names, fmt.Sprintf("%s (%s)", p.Name, directions(p)))
		}
	}
	slices.Sort(names)
	return names
}

// directions returns what a policy restricts. The API server sets policyTypes if they are missing.
func directions(p *networkingv1.NetworkPolicy) string {
	var names []string
	for _, t := range p.Spec.PolicyTypes {
		names = append(names, strings.ToLower(string(t)))
	}
	return strings.Join(names, ", ")
}

// identityPort returns the port of the identity service in the operator's pods.
func identityPort(o *Operator) int32 {
	const usual, name = 9444, "identity"
	if o != nil {
		for i := range o.Template.Spec.Containers {
			for _, port := range o.Template.Spec.Containers[i].Ports {
				if port.Name == name {
					return port.ContainerPort
				}
			}
		}
	}
	return usual
}

func policyFinding(object string, names []string, required string) Finding {
	return Finding{
		Warning, object,
		fmt.Sprintf("Agents aren't connected, and NetworkPolicies select its pods: %s.", strings.Join(names, ", ")),
		"Policies must permit " + required + ": see docs/install.md, Network policies. Policies are additive.",
	}
}
