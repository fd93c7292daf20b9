package tracing_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/operator/tracing"
)

// TestEnabled: traces are exported only on request, and a wrong value is explained.
func TestEnabled(t *testing.T) {
	const endpoint, collector = "OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"
	for name, c := range map[string]struct {
		environment map[string]string
		enabled     bool
		problem     string
	}{
		"nothing":           {nil, false, ""},
		"an endpoint":       {map[string]string{endpoint: collector}, true, ""},
		"only for traces":   {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector:4317"}, true, ""},
		"for traces, first": {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector, endpoint: "nonsense"}, true, ""},
		"disabled":          {map[string]string{endpoint: collector, "OTEL_SDK_DISABLED": "True"}, false, ""},
		"no exporter":       {map[string]string{endpoint: collector, "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		"grpc":              {map[string]string{endpoint: collector, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		"another exporter":  {map[string]string{endpoint: collector, "OTEL_TRACES_EXPORTER": "zipkin"}, false, `OTEL_TRACES_EXPORTER must be otlp or none, got "zipkin"`},
		"http":              {map[string]string{endpoint: collector, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL must be grpc, got "http/protobuf"`},
		"http for traces": {
			map[string]string{endpoint: collector, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
			false, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL must be grpc, got "http/json"`,
		},
		"no URL":      {map[string]string{endpoint: "collector:4317"}, false, `OTEL_EXPORTER_OTLP_ENDPOINT must be the URL of an OTLP receiver, such as http://collector.observability:4317, got "collector:4317"`},
		"no endpoint": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, false, "OTEL_EXPORTER_OTLP_ENDPOINT must be the URL of an OTLP receiver, such as http://collector.observability:4317, if OTEL_TRACES_EXPORTER is otlp"},
	} {
		enabled, err := tracing.Enabled(func(name string) string { return c.environment[name] })
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if enabled != c.enabled || problem != c.problem {
			t.Errorf("%s: got %t, %q, want %t, %q", name, enabled, problem, c.enabled, c.problem)
		}
	}
}
