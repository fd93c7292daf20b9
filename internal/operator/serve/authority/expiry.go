package authority

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Expiry is the metric of when certificates expire. It reads them whenever it is collected: they are renewed.
type Expiry struct{ all []expiring }

type expiring struct {
	name     string
	notAfter func() time.Time
}

var expiryMetric = prometheus.NewDesc("conclave_operator_certificate_expiry_timestamp_seconds",
	"Expiry of a certificate, as a Unix timestamp.", []string{"certificate"}, nil)

// Add adds a certificate. Call it before the metrics are served.
func (e *Expiry) Add(name string, notAfter func() time.Time) {
	e.all = append(e.all, expiring{name, notAfter})
}

// Describe implements prometheus.Collector.
func (e *Expiry) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- expiryMetric }

// Collect implements prometheus.Collector. A certificate that can't be read has the value 0, as if it had expired.
func (e *Expiry) Collect(metrics chan<- prometheus.Metric) {
	for _, one := range e.all {
		value := 0.0
		if at := one.notAfter(); !at.IsZero() {
			value = float64(at.Unix())
		}
		metrics <- prometheus.MustNewConstMetric(expiryMetric, prometheus.GaugeValue, value, one.name)
	}
}
