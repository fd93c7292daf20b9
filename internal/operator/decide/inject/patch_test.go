package inject_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var settings = inject.Settings{
	AgentImage:  "conclave/agent:1",
	IdentityURL: "https://conclave-identity.conclave-system.svc",
	CABundle:    "-----BEGIN CERTIFICATE-----\n",
}

// TestPods does what the webhook does with the pods in testdata/pods. Below each pod, a file has the
// operations, or what the options are about, or the error message.
func TestPods(t *testing.T) {
	datadriven.Walk(t, "testdata/pods", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			pod, err := yaml.YAMLToJSON([]byte(d.Input))
			must.Succeed(t, err)
			choice, err := inject.ChoiceOf(pod, d.HasArg("namespace"))
			must.Succeed(t, err)
			operations, err := inject.Patch(pod, choice, valuesOf(d, "groups"), settingsOf(d))
			if err != nil {
				return "refused: " + err.Error()
			}
			if len(operations) == 0 {
				return "unchanged"
			}
			patched := apply(t, pod, operations)
			switch {
			case d.Cmd == "selected":
				return describeAgent(t, patched)
			case d.HasArg("agent"):
				return renderOptions(t, patched)
			case d.HasArg("exclusions"):
				return renderExclusions(t, patched)
			case d.HasArg("evictable"):
				return podOf(t, patched).Metadata.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"]
			case d.HasArg("exec"):
				return renderExec(t, patched)
			case d.HasArg("secrets"):
				return strings.Join(podOf(t, patched).pullSecrets(), ",")
			}
			return render(t, operations, d.HasArg("whole"))
		})
	})
}

// render lists operations, with their values if whole is set.
func render(t *testing.T, operations []inject.Operation, whole bool) string {
	t.Helper()
	var text strings.Builder
	for _, o := range operations {
		value, err := yaml.JSONToYAML(o.Value)
		must.Succeed(t, err)
		text.WriteString(o.Op + " " + o.Path + "\n")
		if whole {
			text.Write(value)
		}
	}
	return text.String()
}

// renderExec returns the init containers and containers of a pod, without the agent.
func renderExec(t *testing.T, pod []byte) string {
	t.Helper()
	var p struct {
		Spec struct{ InitContainers, Containers []any }
	}
	must.Succeed(t, json.Unmarshal(pod, &p))
	text, err := yaml.Marshal(append(p.Spec.InitContainers[1:], p.Spec.Containers...))
	must.Succeed(t, err)
	return string(text)
}

// apply applies a patch as the API server does.
func apply(t *testing.T, pod []byte, operations []inject.Operation) []byte {
	t.Helper()
	raw, err := json.Marshal(operations)
	must.Succeed(t, err)
	patch, err := jsonpatch.DecodePatch(raw)
	must.Succeed(t, err)
	patched, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("cannot apply\n%s\nto\n%s: %v", raw, pod, err)
	}
	return patched
}

func TestInjectionIsIdempotent(t *testing.T) {
	pod := must.ReadFile(t, filepath.Join("testdata", "pod.json"))
	operations, err := inject.Patch(pod, inject.NamedGroups, nil, settings)
	if err != nil || len(operations) == 0 {
		t.Fatalf("got operations %v and error %v, want operations", operations, err)
	}
	other := settings
	other.AgentImage = "conclave/agent:2"
	again, err := inject.Patch(apply(t, pod, operations), inject.NamedGroups, nil, other)
	if err != nil || len(again) > 0 {
		t.Errorf("second Patch: got operations %v and error %v, want none", again, err)
	}
}

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
			operations, err := inject.Patch(raw, inject.NamedGroups, nil, settings)
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
			if agent.Name != "conclave-agent" || agent.RestartPolicy == nil ||
				*agent.RestartPolicy != corev1.ContainerRestartPolicyAlways {
				t.Errorf("got first init container %+v, want the agent as a sidecar", agent)
			}
		})
	}
}
