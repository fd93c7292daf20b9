package netpolicy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/plugin/check/netpolicy"
)

func parse(t *testing.T, text string) (policies []networkingv1.NetworkPolicy) {
	t.Helper()
	for document := range strings.SplitSeq(text, "---") {
		var p networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(document), &p.Spec); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		p.Namespace, p.Name = "bank", string(rune('a'+len(policies)))
		policies = append(policies, p)
	}
	return policies
}

// TestBlocking: ledger-0 connects to port 7373 of ledger-1. Both are in the namespace bank, with
// the label app: ledger, and the second one names the port peers.
func TestBlocking(t *testing.T) {
	const none = ""
	for name, c := range map[string]struct {
		policies        string
		ingress, egress string
	}{
		"a policy for other pods":             {"podSelector: {matchLabels: {app: mail}}", none, none},
		"deny all ingress, by default":        {"podSelector: {}", "a", none},
		"deny all egress":                     {"{podSelector: {}, policyTypes: [Egress]}", none, "a"},
		"deny both":                           {"{podSelector: {}, policyTypes: [Ingress, Egress]}", "a", "a"},
		"egress rules without policyTypes":    {"{podSelector: {}, egress: [{ports: [{port: 53, protocol: UDP}]}]}", "a", "a"},
		"rules that policyTypes leaves out":   {"{podSelector: {}, policyTypes: [Egress], ingress: [{}], egress: [{}]}", none, none},
		"an empty rule admits all":            {"{podSelector: {}, ingress: [{}]}", none, none},
		"policies add up":                     {"podSelector: {}\n---\n{podSelector: {matchLabels: {app: ledger}}, ingress: [{ports: [{port: 7373}]}]}", none, none},
		"two policies block":                  {"podSelector: {}\n---\n{podSelector: {}, ingress: [{ports: [{port: 80}]}]}", "a b", none},
		"another port":                        {"{podSelector: {}, ingress: [{ports: [{port: 7375}]}]}", "a", none},
		"one of two ports":                    {"{podSelector: {}, ingress: [{ports: [{port: 7375}, {port: 7373}]}]}", none, none},
		"UDP":                                 {"{podSelector: {}, ingress: [{ports: [{port: 7373, protocol: UDP}]}]}", "a", none},
		"all TCP ports":                       {"{podSelector: {}, ingress: [{ports: [{protocol: TCP}]}]}", none, none},
		"a range":                             {"{podSelector: {}, ingress: [{ports: [{port: 7000, endPort: 7373}]}]}", none, none},
		"a range that ends before":            {"{podSelector: {}, ingress: [{ports: [{port: 7000, endPort: 7372}]}]}", "a", none},
		"a named port":                        {"{podSelector: {}, ingress: [{ports: [{port: peers}]}]}", none, none},
		"a named port, for egress":            {"{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: peers}]}]}", none, none},
		"an unknown name":                     {"{podSelector: {}, ingress: [{ports: [{port: web}]}]}", "a", none},
		"pods of the namespace":               {"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: ledger}}}]}]}", none, none},
		"other pods of the namespace":         {"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: mail}}}]}]}", "a", none},
		"an expression":                       {"{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [mail, ledger]}]}}]}]}", none, none},
		"peers that aren't listed":            {"{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: mail}}}, {podSelector: {}}]}]}", none, none},
		"the port of one rule, pods of other": {"{podSelector: {}, ingress: [{ports: [{port: 7373}], from: [{podSelector: {matchLabels: {app: mail}}}]}, {ports: [{port: 80}]}]}", "a", none},
		"the namespace":                       {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: bank}}}]}]}", none, none},
		"all namespaces":                      {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}", none, none},
		"another namespace":                   {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: shop}}}]}]}", "a", none},
		"other pods of all namespaces":        {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: mail}}}]}]}", "a", none},
		"a block with the address":            {"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}", none, none},
		"a block with an exception":           {"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}]}", "a", none},
		"another block":                       {"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.168.0.0/16}}]}]}", "a", none},
		"egress to a block":                   {"{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.2.0.0/16}}], ports: [{port: 7373}]}]}", none, none},
	} {
		ports := []corev1.ContainerPort{{Name: "peers", ContainerPort: 7373}}
		labels, namespace := map[string]string{"app": "ledger"}, map[string]string{"team": "bank"}
		connection := &netpolicy.Connection{
			From: netpolicy.Endpoint{Namespace: "bank", NamespaceLabels: namespace, Labels: labels, IP: "10.1.0.7"},
			To:   netpolicy.Endpoint{Namespace: "bank", NamespaceLabels: namespace, Labels: labels, IP: "10.2.0.7", Ports: ports}, Port: 7373,
		}
		for direction, want := range map[networkingv1.PolicyType]string{networkingv1.PolicyTypeIngress: c.ingress, networkingv1.PolicyTypeEgress: c.egress} {
			if got := strings.Join(netpolicy.Blocking(parse(t, c.policies), direction, connection), " "); got != want {
				t.Errorf("%s, %s: got %q, want %q", name, direction, got, want)
			}
		}
	}
}

// TestUnknownCountsAsAdmitted: of another namespace and of the operator's pods not everything is known.
func TestUnknownCountsAsAdmitted(t *testing.T) {
	for name, c := range map[string]struct{ policies, want string }{
		"a label that is unknown":     {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}]}", ""},
		"the name of the namespace":   {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: conclave-system}}}]}]}", ""},
		"the name of another one":     {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop, team: ops}}}]}]}", "a"},
		"names in an expression":      {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [shop]}]}}]}]}", "a"},
		"an address that is unknown":  {"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.168.0.0/16}}]}]}", ""},
		"pods of the own namespace":   {"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}", "a"},
		"other pods of its namespace": {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: prometheus}}}]}]}", "a"},
	} {
		connection := &netpolicy.Connection{
			From: netpolicy.Endpoint{Namespace: "conclave-system", Labels: map[string]string{"app": "manager"}},
			To:   netpolicy.Endpoint{Namespace: "bank"}, Port: 7375,
		}
		if got := strings.Join(netpolicy.Blocking(parse(t, c.policies), networkingv1.PolicyTypeIngress, connection), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestPolicyOfAnotherNamespace doesn't apply.
func TestPolicyOfAnotherNamespace(t *testing.T) {
	connection := &netpolicy.Connection{From: netpolicy.Endpoint{Namespace: "conclave-system"}, To: netpolicy.Endpoint{Namespace: "bank"}, Port: 7375}
	denyAll := parse(t, "{podSelector: {}, policyTypes: [Ingress, Egress]}")
	if got := netpolicy.Blocking(denyAll, networkingv1.PolicyTypeEgress, connection); len(got) > 0 {
		t.Errorf("got %q, want nothing that blocks pods of conclave-system", got)
	}
	if got := netpolicy.Blocking(denyAll, networkingv1.PolicyTypeIngress, connection); len(got) != 1 {
		t.Errorf("got %q, want the policy of bank", got)
	}
}
