// Package alerts tests that Prometheus accepts the alerts in config/prometheus, that they fire
// when they should and only then, and that each has its runbook. It is a separate module because
// of the dependencies of Prometheus.
package alerts
