package rules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// egressFindings are those about a pod that may connect to DNS servers only.
const egressFindings = `problem pod bank/ledger-0: The NetworkPolicy a blocks its TCP port 7373: no ingress rule admits the other members of ledger.
problem pod bank/ledger-0: The NetworkPolicy a blocks its connections to TCP port 7373: no egress rule admits the other members of ledger.
problem pod bank/ledger-0: The NetworkPolicy a blocks its TCP port 7375: no ingress rule admits the operator in namespace conclave-system.
problem pod bank/ledger-0: The NetworkPolicy a blocks its connections to TCP port 9444: no egress rule admits the operator in namespace conclave-system.`

func hostNetwork(f *Facts) {
	for i := range f.Pods {
		f.Pods[i].Spec.HostNetwork = true
	}
}

// labelAllButFirst adds a label to each pod but the first one.
func labelAllButFirst(f *Facts) {
	for i := range f.Pods[1:] {
		f.Pods[i+1].Labels["rack"] = "1"
	}
}

func replaceMembers(f *Facts) {
	f.Groups[0].Status.MemberList.Members = []v1.Member{{Pod: "x", Priority: 1}, {Pod: "y", Priority: 2}, {Pod: "z"}}
}

func moveIdentity(f *Facts) { f.Operators[0].Template.Spec.Containers[0].Ports[0].ContainerPort = 9555 }

func forgetOperator(f *Facts) { f.Unknown[Operators], f.Operators = "forbidden", nil }

// policy returns a NetworkPolicy of the namespace bank.
func policy(t *testing.T, name, spec string) networkingv1.NetworkPolicy {
	t.Helper()
	p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// denyOperator isolates the operator's pods in their namespace.
func denyOperator(f *Facts) {
	f.Policies = append(f.Policies, networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "conclave-system", Name: "deny"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}},
	})
}

// operatorFindings are those about an operator that may not connect to anything.
const operatorFindings = `problem operator in namespace conclave-system: The NetworkPolicy deny blocks its TCP port 9444: no ingress rule admits the agents of group bank/ledger.
problem operator in namespace conclave-system: The NetworkPolicy deny blocks its connections to TCP port 7375: no egress rule admits the agents of group bank/ledger.`

// documented is the policy in docs/install.md.
const documented = `{podSelector: {matchLabels: {conclave.dev/agent: enabled}}, policyTypes: [Ingress, Egress], ingress: [
	{ports: [{port: 7373}], from: [{podSelector: {matchLabels: {conclave.dev/agent: enabled}}}]},
	{ports: [{port: 7375}], from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: conclave-system}}}]}], egress: [
	{ports: [{port: 7373}], to: [{podSelector: {matchLabels: {conclave.dev/agent: enabled}}}]},
	{ports: [{port: 9444}], to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: conclave-system}}}]}]}`

func TestPolicies(t *testing.T) {
	const (
		denyAll  = "{podSelector: {}, policyTypes: [Ingress, Egress]}"
		peers    = "{podSelector: {}, ingress: [{ports: [{port: 7373}]}]}"
		operator = "{podSelector: {}, ingress: [{ports: [{port: 7375}], from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: conclave-system}}}]}]}"
	)
	for name, c := range map[string]struct {
		policies []string
		change   func(*Facts)
		want     string
	}{
		"that of the documentation":   {[]string{denyAll, documented}, nil, ""},
		"ingress of other agents":     {[]string{operator}, nil, "problem pod bank/ledger-0 and 2 more: The NetworkPolicy a blocks its TCP port 7373: no ingress rule admits the other members of ledger."},
		"ingress of the operator":     {[]string{peers}, nil, "problem pod bank/ledger-0 and 2 more: The NetworkPolicy a blocks its TCP port 7375: no ingress rule admits the operator in namespace conclave-system."},
		"another group is checked":    {[]string{peers}, func(f *Facts) { f.Group = "other" }, ""},
		"a policy of other pods":      {[]string{"{podSelector: {matchLabels: {app: mail}}}"}, nil, ""},
		"no operator is known":        {[]string{peers}, forgetOperator, "unknown the operator: forbidden"},
		"pods on the node's network":  {[]string{denyAll}, hostNetwork, ""},
		"pods that aren't members":    {[]string{denyAll}, replaceMembers, ""},
		"a policy of the operator":    {nil, denyOperator, operatorFindings},
		"no permission":               {nil, func(f *Facts) { f.Unknown[Policies] = "forbidden" }, "unknown the network policies: forbidden"},
		"the operator's pods differ":  {[]string{peers, "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: manager}}}]}]}"}, nil, ""},
		"one member isn't admitted":   {[]string{operator, "{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: rack, operator: Exists}]}}]}]}"}, labelAllButFirst, "problem pod bank/ledger-1 and 1 more: The NetworkPolicies a and b block its TCP port 7373: no ingress rule admits ledger-0."},
		"egress, and two directions":  {[]string{"{podSelector: {matchLabels: {first: x}}, egress: [{ports: [{port: 53}]}]}"}, func(f *Facts) { f.Pods[0].Labels["first"] = "x" }, egressFindings},
		"the identity port has moved": {[]string{"{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 7373}, {port: identity}]}]}"}, moveIdentity, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			f.Operators[0].Template.Labels = map[string]string{"app": "manager"}
			f.Operators[0].Template.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "identity", ContainerPort: 9444}}}}
			for i, spec := range c.policies {
				f.Policies = append(f.Policies, policy(t, string(rune('a'+i)), spec))
			}
			if c.change != nil {
				c.change(f)
			}
			findings := Run(f)
			if got := format(findings); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for _, found := range findings {
				if found.Level == Problem && found.Advice != policyAdvice {
					t.Errorf("%s: got advice %q", found.Message, found.Advice)
				}
			}
		})
	}
}
