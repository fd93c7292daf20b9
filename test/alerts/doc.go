// Package alerts tests that Prometheus accepts the alerts in config/prometheus, and that
// the operator has their metrics. It is a separate module because of the dependencies of
// Prometheus.
package alerts
