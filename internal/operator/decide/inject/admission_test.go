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
)

var apiServer = apiserver.New()

func TestMain(m *testing.M) { apiServer.Main(m) }

func connect(t *testing.T) client.Client {
	t.Helper()
	config := apiServer.Config(t)
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}

// TestInjectedPodMeetsRestrictedPodSecurity creates injected pods on a real API server,
// which validates all fields and enforces Pod Security.
func TestInjectedPodMeetsRestrictedPodSecurity(t *testing.T) {
	c := connect(t)
	namespace := func(name, level string) {
		t.Helper()
		labels := map[string]string{"pod-security.kubernetes.io/enforce": level}
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			operations, err := inject.Patch(raw, settings)
			if err != nil || len(operations) == 0 {
				t.Fatalf("got operations %v and error %v, want operations", operations, err)
			}
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict(apply(t, raw, operations), &pod); err != nil {
				t.Fatal(err)
			}
			pod.Namespace = test.namespace
			pod.Spec.ServiceAccountName = "default" // In a cluster, an admission plugin sets it.
			if err := c.Create(t.Context(), &pod); err != nil {
				t.Fatal(err)
			}
			stored := &corev1.Pod{}
			if err := c.Get(t.Context(), types.NamespacedName{Namespace: test.namespace, Name: name}, stored); err != nil {
				t.Fatal(err)
			}
			agent := stored.Spec.InitContainers[0]
			if agent.Name != "conclave-agent" || agent.RestartPolicy == nil || *agent.RestartPolicy != corev1.ContainerRestartPolicyAlways {
				t.Errorf("got first init container %+v, want the agent as a sidecar", agent)
			}
		})
	}
}
