// Package alerts has tests alone: that Prometheus understands the alerts in
// config/prometheus. It is a module of its own for what Prometheus needs.
package alerts
