package policyrules_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/policyrules"
)

func pod(namespace, name, ip string, labels map[string]string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "api", ContainerPort: 7375}}}},
		},
		Status: corev1.PodStatus{PodIP: ip},
	}
}

func cluster(t *testing.T, policies ...string) *policyrules.Cluster {
	t.Helper()
	c := &policyrules.Cluster{
		Policies: make([]networkingv1.NetworkPolicy, len(policies)),
		Pods: []corev1.Pod{
			pod("shop", "ledger-0", "10.1.0.2", map[string]string{"agent": "enabled"}),
			pod("shop", "ledger-1", "10.1.1.2", map[string]string{"agent": "enabled"}),
			pod("shop", "web", "10.1.1.3", nil),
			pod("system", "manager", "10.1.2.2", nil),
			pod("shop", "starting", "", map[string]string{"agent": "enabled"}),
		},
		Namespaces: []corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "system", Labels: map[string]string{"operator": "true"}}},
		},
	}
	for i, text := range policies {
		must.Succeed(t, yaml.UnmarshalStrict([]byte(text), &c.Policies[i]))
	}
	return c
}

const agents = `
metadata: {name: agents, namespace: shop}
spec:
  podSelector: {matchLabels: {agent: enabled}}
  policyTypes: [Ingress, Egress]
  ingress:
  - ports: [{port: 7373}]
    from: [{podSelector: {matchLabels: {agent: enabled}}}]
  - ports: [{port: api}]
    from: [{namespaceSelector: {matchLabels: {operator: "true"}}}]
  - from: [{podSelector: {matchLabels: {agent: nowhere}}}]
  egress:
  - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
`

const denyAll = `
metadata: {name: deny, namespace: shop}
spec: {podSelector: {}, policyTypes: [Ingress]}
`

func TestRules(t *testing.T) {
	rules, err := policyrules.Rules(cluster(t, agents, denyAll))
	must.Succeed(t, err)
	golden.Compare(t, "testdata/rules.nft", rules)
}

func TestUnsupportedPolicies(t *testing.T) {
	for want, spec := range map[string]string{
		"ipBlock isn't supported":       `ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]`,
		"ports must be numbers":         `ingress: [{ports: [{port: 1, endPort: 9}]}]`,
		`has no port "metrics"`:         `ingress: [{ports: [{port: metrics}]}]`,
		"or, for ingress, names, got &": `egress: [{ports: [{port: api}]}]`,
	} {
		_, err := policyrules.Rules(cluster(t,
			`{metadata: {name: p, namespace: shop}, spec: {podSelector: {}, policyTypes: [Ingress, Egress], `+spec+`}}`))
		expect.ErrorContainsf(t, err, want, "%s: error", spec)
	}
}
