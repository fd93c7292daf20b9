package manifests_test

import (
	"encoding/json"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestDashboardsAreConfigMaps(t *testing.T) {
	objects := build(t, "config/grafana")
	must.Equalf(t, len(objects), 4, "objects (a ConfigMap for each dashboard)")
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" || object.GetLabels()["grafana_dashboard"] != "1" {
			t.Errorf("got %s %s with labels %v, want a ConfigMap that Grafana's sidecar selects", object.GetKind(), object.GetName(), object.GetLabels())
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
