package describe_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// noon is the time of all commands, unless a command sets a later one in milliseconds.
var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// TestTranscripts shows the output for users. The commands of each file are:
//
//	group                  sets the group, in YAML
//	change                 changes fields of the group
//	status, explain        show the output of Status and Explain
//	nodes mode=MODE        shows what the loss of each node of a group means, which is given as for placed
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var g v1.ElectionGroup
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var output strings.Builder
			var millis int
			if d.HasArg("at") {
				d.ScanArgs(t, "at", &millis)
			}
			now := noon.Add(time.Duration(millis) * time.Millisecond)
			switch d.Cmd {
			case "group":
				g = v1.ElectionGroup{}
				parse(t, d.Input, &g)
			case "change":
				g = mergePatch(t, &g, d.Input)
			case "status":
				describe.Status(&output, &g, now)
			case "explain":
				describe.Explain(&output, &g, now)
			case "nodes":
				placed := placed(t, v1.SafetyMode(d.CmdArgs[0].Vals[0]), strings.TrimPrefix(d.Input, "none"))
				output.WriteString(cmp.Or(formatPlaces(describe.Nodes(placed)), "none"))
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return output.String()
		})
	})
}

func parse(t *testing.T, text string, g *v1.ElectionGroup) {
	t.Helper()
	must.Succeed(t, yaml.UnmarshalStrict([]byte(text), g))
}

// mergePatch applies a merge patch, which replaces lists.
func mergePatch(t *testing.T, g *v1.ElectionGroup, text string) v1.ElectionGroup {
	t.Helper()
	before, err := json.Marshal(g)
	must.Succeed(t, err)
	change, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(t, err)
	after, err := jsonpatch.MergePatch(before, change)
	must.Succeed(t, err)
	var next v1.ElectionGroup
	parse(t, string(after), &next)
	return next
}
