package tracing

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// The variables of the OpenTelemetry specification that decide whether traces are exported.
// The exporter itself reads the others.
const (
	disabledVariable = "OTEL_SDK_DISABLED"
	exporterVariable = "OTEL_TRACES_EXPORTER"
	endpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"
	protocolVariable = "OTEL_EXPORTER_OTLP_PROTOCOL"
	// Those for traces take precedence over those for all signals.
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// Enabled reports whether the environment requests traces: it names an endpoint. Unlike
// programs that follow the specification to the letter, the operator sends nothing to a default
// endpoint. The errors say which value would be right.
func Enabled(environment func(string) string) (bool, error) {
	endpointName, endpoint := first(environment, tracesEndpointVariable, endpointVariable)
	switch exporter := environment(exporterVariable); {
	case strings.EqualFold(environment(disabledVariable), "true"), exporter == "none":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("%s must be otlp or none, got %q", exporterVariable, exporter)
	case endpoint == "" && exporter == "otlp":
		return false, fmt.Errorf("%s must be the URL of an OTLP receiver, such as http://collector.observability:4317, if %s is otlp", endpointVariable, exporterVariable)
	case endpoint == "":
		return false, nil
	}
	if name, protocol := first(environment, tracesProtocolVariable, protocolVariable); protocol != "" && protocol != "grpc" {
		return false, fmt.Errorf("%s must be grpc, got %q", name, protocol)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("%s must be the URL of an OTLP receiver, such as http://collector.observability:4317, got %q", endpointName, endpoint)
	}
	return true, nil
}

// first returns the first variable that is set.
func first(environment func(string) string, names ...string) (name, value string) {
	for _, name := range names {
		if value := environment(name); value != "" {
			return name, value
		}
	}
	return cmp.Or(names...), ""
}
