package rules

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/golden"
)

// denyAll returns a policy that restricts both directions of the pods with these labels.
func denyAll(namespace, name string, selects map[string]string) networkingv1.NetworkPolicy {
	return networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: selects},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

func TestPoliciesOfDisconnectedAgents(t *testing.T) {
	cases := golden.Open(t, "testdata/policies.txt")
	for name, change := range map[string]func(*Facts){
		"a policy of the pods":     func(*Facts) {},
		"the agents are connected": func(f *Facts) { f.Groups[0].Status.Conditions = nil },
		"nobody is coordinator": func(f *Facts) {
			f.Groups[0].Status.Conditions[0].Type = string(v1.ConditionAvailable)
		},
		"another group is checked": func(f *Facts) { f.Group = "other" },
		"a policy of other pods": func(f *Facts) {
			f.Policies[0].Spec.PodSelector.MatchLabels = map[string]string{"app": "mail"}
		},
		"of another namespace":       func(f *Facts) { f.Policies[0].Namespace = "shop" },
		"pods on the node's network": hostNetwork,
		"pods that aren't members": func(f *Facts) {
			f.Groups[0].Status.Protocol.MemberList.Members = []v1.Member{{Pod: "x"}}
		},
		"a policy of the operator": func(f *Facts) { f.Policies[0] = denyAll("conclave-system", "deny", nil) },
		"the policy of the manifests": func(f *Facts) {
			f.Policies[0] = denyAll("conclave-system", "conclave-manager", nil)
			f.Policies[0].Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		},
		"the agents disagree": func(f *Facts) { f.Groups[0].Status.Processes[0].Reason = v1.ProcessDisputed },
		"only the operator reaches it": func(f *Facts) {
			f.Groups[0].Status.Processes[0] = v1.Process{Status: v1.ProcessCrashed}
		},
		"nobody reaches it":    func(f *Facts) { f.Groups[0].Status.Processes[0].Status = v1.ProcessCrashed },
		"there is no pod":      func(f *Facts) { f.Groups[0].Status.Processes[0].Reason = v1.ProcessPodMissing },
		"no operator is known": func(f *Facts) { f.Unknown[Operators], f.Operators = "forbidden", nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			f.Policies = []networkingv1.NetworkPolicy{denyAll("bank", "a", map[string]string{"app": "ledger"})}
			f.Groups[0].Status.Conditions = []metav1.Condition{
				{Type: string(v1.ConditionAgentsConnected), Status: metav1.ConditionFalse},
			}
			f.Groups[0].Status.Processes = []v1.Process{{Status: v1.ProcessUnknown, Reason: v1.ProcessUnreachable}}
			change(f)
			cases.Compare(t, name, format(checkPolicies(f)))
		})
	}
}

func hostNetwork(f *Facts) {
	for i := range f.Pods {
		f.Pods[i].Spec.HostNetwork = true
	}
}

// The advice has the ports that the operator and agents really use.
func TestPolicyAdviceNamesPorts(t *testing.T) {
	f := healthy(t)
	f.Operators[0].Template.Spec.Containers = []corev1.Container{
		{Ports: []corev1.ContainerPort{{Name: "identity", ContainerPort: 9555}}},
	}
	f.Policies = []networkingv1.NetworkPolicy{denyAll("bank", "a", nil)}
	f.Groups[0].Status.Conditions = []metav1.Condition{
		{Type: string(v1.ConditionAgentsConnected), Status: metav1.ConditionFalse},
	}
	f.Groups[0].Status.Processes = []v1.Process{{Status: v1.ProcessUnknown, Reason: v1.ProcessUnreachable}}
	const want = "ingress to TCP port 7373 from the other members and to 7375 from the operator, and egress to 7373 of " +
		"the other members and 9555 of the operator"
	if found := checkPolicies(f); len(found) != 1 || !strings.Contains(found[0].Advice, want) {
		t.Errorf("got %+v, want in it\n%s", found, want)
	}
}
