package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// pins is the folder of the go.mod that pins the CRDs of the Prometheus Operator. They are files in its module.
const pins = "../thirdparty"

// installCRD installs a CRD from a module that pins/go.mod requires.
func installCRD(t *testing.T, module, crd string) {
	t.Helper()
	must.ReadFile(t, filepath.Join(pins, "go.mod")) // Go's test cache notices when it changes.
	command := exec.CommandContext(t.Context(), "go", "mod", "download", module)
	command.Dir, command.Env = pins, append(os.Environ(), "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cannot download %s: %v\n%s", module, err, output)
	}
	command = exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir, command.Env = pins, append(os.Environ(), "GOWORK=off")
	folder, err := command.Output()
	must.Succeed(t, err)
	file := filepath.Join(strings.TrimSpace(string(folder)), crd)
	need.Complete(t)
	if _, err := envtest.InstallCRDs(apiServer.Config(t),
		envtest.CRDInstallOptions{Paths: []string{file}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
}

// checkUnknownFieldIsRejected checks that the API server validates an object: it must reject an unknown field.
func checkUnknownFieldIsRejected(t *testing.T, c client.Client, object *unstructured.Unstructured, fields ...string) {
	t.Helper()
	invalid := object.DeepCopy()
	must.Succeed(t, unstructured.SetNestedField(invalid.Object, "x", fields...))
	err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(invalid),
		client.FieldOwner("kubectl"), client.DryRunAll)
	expect.ErrorContainsf(t, err, fields[len(fields)-1], "%s with an unknown field", object.GetKind())
}

// objectsOfGroup returns the objects of an API group.
func objectsOfGroup(objects []*unstructured.Unstructured, group string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range objects {
		if object.GroupVersionKind().Group == group {
			found = append(found, object)
		}
	}
	return found
}

func TestMonitoringMatchesCRDs(t *testing.T) {
	const module, crds = "github.com/prometheus-operator/prometheus-operator",
		"example/prometheus-operator-crd/monitoring.coreos.com_"
	installCRD(t, module, crds+"servicemonitors.yaml")
	installCRD(t, module, crds+"podmonitors.yaml")
	installCRD(t, module, crds+"prometheusrules.yaml")
	c := connect(t)
	createNamespace(t, c)
	monitoring := objectsOfGroup(build(t, "config/prometheus"), "monitoring.coreos.com")
	must.Equalf(t, len(monitoring), 3, "objects of the Prometheus Operator")
	apply(t, c, monitoring)
	for _, object := range monitoring {
		checkUnknownFieldIsRejected(t, c, object, "spec", "nonsense")
	}
}

// createNamespace creates the manager's namespace.
func createNamespace(t *testing.T, c client.Client) {
	t.Helper()
	namespaces := objectsOfGroup(build(t, "config/default"), "")
	for _, object := range namespaces {
		if object.GetKind() == "Namespace" {
			apply(t, c, []*unstructured.Unstructured{object})
		}
	}
}

// TestSamplesAreUnchangedWhenAppliedAgain: a default of the schema that kubectl apply or Argo CD takes for a difference
// would make them apply an object again and again.
func TestSamplesAreUnchangedWhenAppliedAgain(t *testing.T) {
	samples, err := filepath.Glob(filepath.Join(root, "config/samples/*.yaml"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("got samples %q, error %v", samples, err)
	}
	c := newTargetCluster(t)
	c.kubectlOn(t, "apply", "--server-side", "-k", filepath.Join(root, "config/crd"))
	for _, sample := range samples {
		t.Run(filepath.Base(sample), func(t *testing.T) {
			c.kubectlOn(t, "apply", "-n", "default", "-f", sample)
			for line := range strings.Lines(c.kubectlOn(t, "apply", "-n", "default", "-f", sample)) {
				// kubectl replaces the selector of a budget each time, also by itself.
				if !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget") {
					t.Errorf("applied again: got %q, want it unchanged", line)
				}
			}
			versions := []string{
				"get", "-n", "default", "-f", sample, "-o", "custom-columns=:.kind,:.metadata.name,:.metadata.resourceVersion",
			}
			c.kubectlOn(t, "apply", "--server-side", "--force-conflicts", "-n", "default", "-f", sample)
			before := c.kubectlOn(t, versions...)
			c.kubectlOn(t, "apply", "--server-side", "-n", "default", "-f", sample)
			expect.Equalf(t, c.kubectlOn(t, versions...), before, "versions after another apply")
		})
	}
}

func (c *targetCluster) kubectlOn(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), c.kubectl,
		append([]string{"--kubeconfig", c.kubeconfig}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v\n%s", arguments, err, output)
	}
	return string(output)
}
