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

	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/test/manifests"
)

// install has the API server know a kind of others, from the module that kinds/go.mod pins.
func install(t *testing.T, module, crd string) {
	t.Helper()
	if err := program.DependOnFolder("kinds"); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "mod", "download", module)
	command.Dir, command.Env = "kinds", append(os.Environ(), "GOWORK=off")
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("download %s: %v\n%s", module, err, said)
	}
	command = exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir, command.Env = "kinds", append(os.Environ(), "GOWORK=off")
	folder, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(folder)), crd)
	if _, err := envtest.InstallCRDs(apiServer.Config(t), envtest.CRDInstallOptions{Paths: []string{file}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
}

// refused wants the API server to refuse an object in which a field has a wrong name.
func refused(t *testing.T, c client.Client, object *unstructured.Unstructured, fields ...string) {
	t.Helper()
	worse := object.DeepCopy()
	if err := unstructured.SetNestedField(worse.Object, "x", fields...); err != nil {
		t.Fatal(err)
	}
	err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(worse), client.FieldOwner("kubectl"), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), fields[len(fields)-1]) {
		t.Errorf("a %s isn't looked at: %v", object.GetKind(), err)
	}
}

// taken: all are, as they are and with nothing more in them.
func taken(t *testing.T, c client.Client, objects []*unstructured.Unstructured) {
	t.Helper()
	apply(t, c, objects)
	for _, object := range objects {
		refused(t, c, object, "spec", "nonsense")
	}
}

// ofOthers are the objects of a group of kinds.
func ofOthers(objects []*unstructured.Unstructured, group string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range objects {
		if object.GroupVersionKind().Group == group {
			found = append(found, object)
		}
	}
	return found
}

func TestThePrometheusOperatorTakesTheMonitoring(t *testing.T) {
	const module, crds = "github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/monitoring.coreos.com_"
	install(t, module, crds+"servicemonitors.yaml")
	install(t, module, crds+"prometheusrules.yaml")
	c := connect(t)
	namespaceOf(t, c)
	monitoring := ofOthers(build(t, "config/prometheus"), "monitoring.coreos.com")
	if len(monitoring) != 2 {
		t.Fatalf("there are %d objects for it", len(monitoring))
	}
	taken(t, c, monitoring)
}

func TestCertManagerTakesTheCertificate(t *testing.T) {
	const module, crds = "github.com/cert-manager/cert-manager", "deploy/crds/cert-manager.io_"
	install(t, module, crds+"certificates.yaml")
	install(t, module, crds+"issuers.yaml")
	c := connect(t)
	namespaceOf(t, c)
	text, err := os.ReadFile(filepath.Join(root, "config/certmanager/certificate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Parse(text)
	if err != nil || len(objects) != 2 {
		t.Fatalf("there are %d objects for it: %v", len(objects), err)
	}
	taken(t, c, objects)
}

// namespaceOf has the manager's namespace be there.
func namespaceOf(t *testing.T, c client.Client) {
	t.Helper()
	namespaces := ofOthers(build(t, "config/default"), "")
	for _, object := range namespaces {
		if object.GetKind() == "Namespace" {
			apply(t, c, []*unstructured.Unstructured{object})
		}
	}
}
