package describe_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/describe"
)

// noon is when everything is told, unless a command says how many milliseconds later.
var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// TestTranscripts shows what people are told. The commands of each file:
//
//	group                   how the group is from here on, in YAML
//	change                  fields of it that are different from here on
//	status, explain         what is told of it
//	chronicle [at=MILLIS]   what has changed since the last time
//	gone [at=MILLIS]        the same, without a group
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var g v1.ElectionGroup
		var chronicle describe.ChangeLog
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var told strings.Builder
			var millis int
			if d.HasArg("at") {
				d.ScanArgs(t, "at", &millis)
			}
			now := noon.Add(time.Duration(millis) * time.Millisecond)
			switch d.Cmd {
			case "group":
				g = v1.ElectionGroup{}
				read(t, d.Input, &g)
			case "change":
				g = changed(t, &g, d.Input)
			case "status":
				describe.Status(&told, &g, now)
			case "explain":
				describe.Explain(&told, &g, now)
			case "chronicle":
				told.WriteString(strings.Join(chronicle.Append(g.DeepCopy(), now), "\n"))
			case "gone":
				told.WriteString(strings.Join(chronicle.Append(nil, now), "\n"))
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return told.String()
		})
	})
}

func read(t *testing.T, text string, g *v1.ElectionGroup) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), g); err != nil {
		t.Fatal(err)
	}
}

// changed puts lists in the place of lists, as reading into g wouldn't.
func changed(t *testing.T, g *v1.ElectionGroup, text string) v1.ElectionGroup {
	t.Helper()
	before, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	change, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, change)
	if err != nil {
		t.Fatal(err)
	}
	var next v1.ElectionGroup
	read(t, string(after), &next)
	return next
}
