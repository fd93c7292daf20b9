// Package metrics has the metrics of the operator that don't belong to a group: what its
// servers respond, which writes the API server refuses, and when certificates expire. Those
// of groups are in package controllers. Each label has few values, whatever clients send.
package metrics

import (
	"crypto/tls"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conclave-dev/conclave/internal/operator/serve/enroll"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
)

const prefix = "conclave_operator_"

// Set has the metrics of one process.
type Set struct {
	enrollments, injections, refusedWrites *prometheus.CounterVec
	certificates                           *certificates
}

// New returns a Set. All results have the value 0 from the beginning, so that the first
// refusal is an increase.
func New(version string) (*Set, []prometheus.Collector) {
	s := &Set{
		enrollments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "enrollments_total", Help: "Requests of agents for certificates, by result.",
		}, []string{"result"}),
		injections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "injections_total", Help: "Requests of the API server to inject an agent into a new pod, by result.",
		}, []string{"result"}),
		refusedWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "writes_refused_total", Help: "Writes that the API server refused, by resource and HTTP status.",
		}, []string{"resource", "code"}),
		certificates: &certificates{},
	}
	for _, result := range enroll.Results() {
		s.enrollments.WithLabelValues(string(result))
	}
	for _, result := range webhook.Results() {
		s.injections.WithLabelValues(string(result))
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: "1, with the version of the operator.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	return s, []prometheus.Collector{s.enrollments, s.injections, s.refusedWrites, s.certificates, info}
}

// Enrolled counts an enrollment.
func (s *Set) Enrolled(result enroll.Result) { s.enrollments.WithLabelValues(string(result)).Inc() }

// Admitted counts an admission request.
func (s *Set) Admitted(result webhook.Result) { s.injections.WithLabelValues(string(result)).Inc() }

// AddCertificate adds a certificate with its expiry. Call it before the metrics are served.
func (s *Set) AddCertificate(name string, notAfter func() time.Time) {
	s.certificates.all = append(s.certificates.all, certificate{name, notAfter})
}

// AddServerCertificate adds the certificate that a server presents.
func (s *Set) AddServerCertificate(name string, get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) {
	s.AddCertificate(name, func() time.Time {
		current, err := get(nil)
		if err != nil || current == nil || current.Leaf == nil {
			return time.Time{}
		}
		return current.Leaf.NotAfter
	})
}

// certificates reads the expiry of certificates whenever it is collected: they are renewed.
type certificates struct{ all []certificate }

type certificate struct {
	name     string
	notAfter func() time.Time
}

var expiry = prometheus.NewDesc(prefix+"certificate_expiry_timestamp_seconds", "Expiry of a certificate, as a Unix timestamp.", []string{"certificate"}, nil)

// Describe implements prometheus.Collector.
func (c *certificates) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- expiry }

// Collect implements prometheus.Collector. A certificate that can't be read has the value 0,
// as if it had expired.
func (c *certificates) Collect(metrics chan<- prometheus.Metric) {
	for _, one := range c.all {
		value := 0.0
		if at := one.notAfter(); !at.IsZero() {
			value = float64(at.Unix())
		}
		metrics <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, value, one.name)
	}
}
