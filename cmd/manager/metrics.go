package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/operator/serve/enroll"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
)

// metricSet has the metrics of the manager's parts. Package controllers registers those of
// groups. Each label has few values, whatever clients send.
type metricSet struct {
	enrollments enroll.Metric
	injections  webhook.Metric
	expiry      *authority.Expiry
}

// newMetrics returns metrics that the manager serves.
func newMetrics() (*metricSet, error) {
	m := &metricSet{enroll.NewMetric(), webhook.NewMetric(), &authority.Expiry{}}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "conclave_operator_build_info", Help: "1, with the version of the operator.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	for _, one := range []prometheus.Collector{m.enrollments, m.injections, m.expiry, info} {
		if err := ctrlmetrics.Registry.Register(one); err != nil {
			return nil, fmt.Errorf("register the metrics: %w", err)
		}
	}
	return m, nil
}
