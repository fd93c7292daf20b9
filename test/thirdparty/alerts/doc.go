// Package alerts tests that Prometheus accepts the alerts in config/prometheus, that they fire
// when they should and only then, and that each has its runbook. It also tests that the
// dashboards in config/grafana show what a manager and an agent measure.
package alerts
