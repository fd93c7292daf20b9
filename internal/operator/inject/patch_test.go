package inject_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/operator/inject"
)

var settings = inject.Settings{
	AgentImage:  "conclave/agent:1",
	IdentityURL: "https://conclave-identity.conclave-system.svc",
	Authorities: "-----BEGIN CERTIFICATE-----\n",
}

// TestPods shows what becomes of pods: each file has pods in YAML, and under
// each what the patch adds, or the line that the user sees.
func TestPods(t *testing.T) {
	datadriven.Walk(t, "testdata/pods", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			pod, err := yaml.YAMLToJSON([]byte(d.Input))
			if err != nil {
				t.Fatal(err)
			}
			operations, err := inject.Patch(pod, settings)
			if err != nil {
				return "refused: " + err.Error()
			}
			if len(operations) == 0 {
				return "left alone"
			}
			apply(t, pod, operations)
			return told(t, operations, d.HasArg("whole"))
		})
	})
}

// TestManifests shows what is found in the objects of a file.
func TestManifests(t *testing.T) {
	outcomes := map[inject.Outcome]string{
		inject.NotOptedIn: "not opted in", inject.LabelMisplaced: "misplaced", inject.Injected: "injected", inject.AlreadyInjected: "had it",
	}
	datadriven.RunTest(t, "testdata/manifests", func(t *testing.T, d *datadriven.TestData) string {
		manifest, err := yaml.YAMLToJSON([]byte(d.Input))
		if err != nil {
			t.Fatal(err)
		}
		found, err := inject.Find(manifest, settings)
		if err != nil {
			return "refused: " + err.Error()
		}
		text := ""
		var all []inject.Operation
		for _, f := range found {
			text += f.Object + ": " + outcomes[f.Outcome] + "\n" + told(t, f.Operations, false)
			all = append(all, f.Operations...)
		}
		apply(t, manifest, all)
		if text == "" {
			return "nothing"
		}
		return text
	})
}

func told(t *testing.T, operations []inject.Operation, whole bool) string {
	t.Helper()
	var text strings.Builder
	for _, o := range operations {
		value, err := yaml.JSONToYAML(o.Value)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(o.Op + " " + o.Path + "\n")
		if whole {
			text.Write(value)
		}
	}
	return text.String()
}

// apply is what the API server does with a patch.
func apply(t *testing.T, pod []byte, operations []inject.Operation) []byte {
	t.Helper()
	raw, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("%s\ncan't be applied to\n%s: %v", raw, pod, err)
	}
	return patched
}

func TestInjectingTwiceIsAsGoodAsOnce(t *testing.T) {
	pod, err := os.ReadFile(filepath.Join("testdata", "pod.json"))
	if err != nil {
		t.Fatal(err)
	}
	operations, err := inject.Patch(pod, settings)
	if err != nil || len(operations) == 0 {
		t.Fatalf("Patch = %v, %v, want operations", operations, err)
	}
	other := settings
	other.AgentImage = "conclave/agent:2"
	again, err := inject.Patch(apply(t, pod, operations), other)
	if err != nil || len(again) > 0 {
		t.Errorf("the second Patch = %v, %v, want nothing", again, err)
	}
}
