package manifests_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// endpoint is one of a ServiceMonitor or a PodMonitor.
type endpoint struct {
	Port, Path, Scheme string
	TLSConfig          struct {
		ServerName         string
		InsecureSkipVerify bool
		CA, Cert           struct{ Secret *corev1.SecretKeySelector }
		KeySecret          *corev1.SecretKeySelector
	}
}

// TestPrometheusVerifiesServers: it verifies the manager and the agents, with the credentials that the manager writes.
func TestPrometheusVerifiesServers(t *testing.T) {
	endpoints := map[string]endpoint{}
	for _, object := range objectsOfGroup(build(t, "config/prometheus"), "monitoring.coreos.com") {
		text, err := json.Marshal(object.Object["spec"])
		must.Succeed(t, err)
		var spec struct{ Endpoints, PodMetricsEndpoints []endpoint }
		must.Succeed(t, json.Unmarshal(text, &spec))
		for _, e := range append(spec.Endpoints, spec.PodMetricsEndpoints...) {
			endpoints[object.GetKind()] = e
		}
	}
	if len(endpoints) != 2 {
		t.Fatalf("got endpoints %v, want one for the manager and one for agents", endpoints)
	}
	isKey := func(got *corev1.SecretKeySelector, key string) bool {
		return got != nil && got.Name == authority.MetricsSecretName && got.Key == key
	}
	for kind, e := range endpoints {
		if tls := e.TLSConfig; e.Scheme != "https" || tls.InsecureSkipVerify ||
			!isKey(tls.CA.Secret, authority.MetricsCAKey) {
			t.Errorf("%s: got %+v, want https, and the CA bundle of the Secret %s", kind, e, authority.MetricsSecretName)
		}
	}
	expect.Equalf(t, endpoints["ServiceMonitor"].TLSConfig.ServerName, "conclave-metrics.conclave-system.svc",
		"manager: server name")
	agents := endpoints["PodMonitor"]
	if tls := agents.TLSConfig; tls.ServerName != identity.AgentHost ||
		!isKey(tls.Cert.Secret, authority.MetricsCertKey) || !isKey(tls.KeySecret, authority.MetricsKeyKey) {
		t.Errorf("agents: got %+v, want server name %s, and the certificate of the Secret", tls, identity.AgentHost)
	}
	for _, port := range agentPorts(t) {
		if port.Name == agents.Port && port.ContainerPort == control.OperatorPort {
			return
		}
	}
	t.Errorf("the agents' container has no port %s with number %d", agents.Port, control.OperatorPort)
}

// agentPorts returns the ports of an injected agent.
func agentPorts(t *testing.T) []corev1.ContainerPort {
	t.Helper()
	pod := []byte(`{"metadata":{"labels":{"conclave.dev/agent":"enabled"},"annotations":{"conclave.dev/groups":"ledger"}},"spec":{"containers":[{"name":"a"}]}}`)
	settings := inject.Settings{AgentImage: "agent:1", IdentityURL: "https://identity"}
	patch, err := inject.Patch(pod, inject.NamedGroups, nil, settings)
	must.Succeed(t, err)
	for _, operation := range patch {
		text, err := json.Marshal(operation.Value)
		must.Succeed(t, err)
		var containers []corev1.Container
		if json.Unmarshal(text, &containers) == nil && len(containers) == 1 && len(containers[0].Ports) > 0 {
			return containers[0].Ports
		}
	}
	t.Fatalf("got no container in the patch %+v", patch)
	return nil
}

func TestDashboardsAreConfigMaps(t *testing.T) {
	objects := build(t, "config/grafana")
	must.Equalf(t, len(objects), 4, "objects (a ConfigMap for each dashboard)")
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" || object.GetLabels()["grafana_dashboard"] != "1" {
			t.Errorf("got %s %s with labels %v, want a ConfigMap that Grafana's sidecar selects", object.GetKind(),
				object.GetName(), object.GetLabels())
		}
		data, ok := object.Object["data"].(map[string]any)
		if !ok || len(data) != 1 {
			t.Errorf("%s: got data %v, want one file", object.GetName(), data)
		}
		for name, text := range data {
			if content, ok := text.(string); !ok || !json.Valid([]byte(content)) {
				t.Errorf("%s: %s isn't JSON", object.GetName(), name)
			}
		}
	}
}
