package inject_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var apiServer = apiserver.New()

func TestMain(m *testing.M) { apiServer.Main(m) }

func connect(t *testing.T) client.Client {
	t.Helper()
	config := apiServer.Config(t)
	c, err := client.New(config, client.Options{})
	must.Succeed(t, err)
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}

// TestInjectedPodMeetsRestrictedPodSecurity creates injected pods on a real API server,
// which validates all fields and enforces Pod Security.
func TestInjectedPodMeetsRestrictedPodSecurity(t *testing.T) {
	c := connect(t)
	namespace := func(name, level string) {
		t.Helper()
		labels := map[string]string{"pod-security.kubernetes.io/enforce": level}
		must.Succeed(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	}
	namespace("bank", "restricted")
	namespace("open", "privileged")
	for name, test := range map[string]struct{ namespace, pod string }{
		"minimal": {"bank", `
metadata: {name: minimal, labels: {conclave.dev/agent: enabled}, annotations: {conclave.dev/groups: ledger}}
spec: {containers: [{name: application, image: ledger:1, securityContext: &restricted {allowPrivilegeEscalation: false,
  runAsNonRoot: true, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}`},
		"with-other-sidecars": {"bank", `
metadata:
  name: with-other-sidecars
  labels: {conclave.dev/agent: enabled}
  annotations: {conclave.dev/groups: "ledger,mail.out", conclave.dev/probe: "http://127.0.0.1:8080/healthz"}
spec:
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 2000, seccompProfile: {type: RuntimeDefault}}
  initContainers:
  - name: proxy
    image: proxy:1
    restartPolicy: Always
    ports: [{name: proxy, containerPort: 15001}]
    securityContext: &restricted {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
  containers: [{name: application, image: ledger:1, securityContext: *restricted, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, emptyDir: {}}]`},
		"program": {"bank", `
metadata: {name: program, labels: {conclave.dev/agent: enabled}, annotations: {conclave.dev/groups: ledger, conclave.dev/exec: ledger}}
spec: {containers: [{name: application, image: ledger:1, command: [settle], securityContext: {allowPrivilegeEscalation: false,
  runAsNonRoot: true, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}`},
		"host-network": {"open", `
metadata: {name: host-network, labels: {conclave.dev/agent: enabled}, annotations: {conclave.dev/groups: ledger}}
spec: {hostNetwork: true, containers: [{name: application, image: ledger:1}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := yaml.YAMLToJSON([]byte(test.pod))
			must.Succeed(t, err)
			operations, err := inject.Patch(raw, settings)
			if err != nil || len(operations) == 0 {
				t.Fatalf("got operations %v and error %v, want operations", operations, err)
			}
			var pod corev1.Pod
			must.Succeed(t, yaml.UnmarshalStrict(apply(t, raw, operations), &pod))
			pod.Namespace = test.namespace
			pod.Spec.ServiceAccountName = "default" // In a cluster, an admission plugin sets it.
			must.Succeed(t, c.Create(t.Context(), &pod))
			stored := &corev1.Pod{}
			must.Succeed(t, c.Get(t.Context(), types.NamespacedName{Namespace: test.namespace, Name: name}, stored))
			agent := stored.Spec.InitContainers[0]
			if agent.Name != "conclave-agent" || agent.RestartPolicy == nil || *agent.RestartPolicy != corev1.ContainerRestartPolicyAlways {
				t.Errorf("got first init container %+v, want the agent as a sidecar", agent)
			}
		})
	}
}
