package inject_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestSelectedPods does what the webhook does with the pods in testdata/selected. Below
// each pod, the file has the metadata of the result, and how its agent learns its groups.
func TestSelectedPods(t *testing.T) {
	datadriven.RunTest(t, "testdata/selected", func(t *testing.T, d *datadriven.TestData) string {
		pod, err := yaml.YAMLToJSON([]byte(d.Input))
		must.Succeed(t, err)
		var groups []string
		for _, arg := range d.CmdArgs {
			if arg.Key == "groups" {
				groups = arg.Vals
			}
		}
		choice, err := inject.ChoiceOf(pod, d.HasArg("namespace"))
		var operations []inject.Operation
		switch {
		case err != nil:
			t.Fatal(err)
		case choice == inject.NamedGroups:
			operations, err = inject.PatchNamed(pod, settings)
		case choice == inject.SelectedGroups:
			operations, err = inject.PatchSelected(pod, groups, settings)
		}
		switch {
		case err != nil:
			return "refused: " + err.Error()
		case len(operations) == 0:
			return "unchanged"
		}
		return describeAgent(t, apply(t, pod, operations))
	})
}

func describeAgent(t *testing.T, pod []byte) string {
	t.Helper()
	var result struct {
		Metadata map[string]any
		Spec     struct {
			InitContainers []struct{ Env []map[string]any }
			Volumes        []struct {
				Projected struct{ Sources []map[string]any }
			}
		}
	}
	must.Succeed(t, json.Unmarshal(pod, &result))
	var text strings.Builder
	write := func(value any) {
		lines, err := yaml.Marshal(value)
		must.Succeed(t, err)
		text.Write(lines)
	}
	write(result.Metadata)
	for _, variable := range result.Spec.InitContainers[0].Env {
		if name, _ := variable["name"].(string); strings.HasPrefix(name, "CONCLAVE_GROUPS") {
			write(variable)
		}
	}
	write(result.Spec.Volumes[0].Projected.Sources[1:])
	return text.String()
}
