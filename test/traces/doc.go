// Package traces tests the traces of elections with real agents and the OTLP receiver of the OpenTelemetry
// collector. It is a module of its own, so that users of the main module don't download the collector.
package traces
