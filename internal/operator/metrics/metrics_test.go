package metrics_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/conclave-dev/conclave/internal/operator/metrics"
	"github.com/conclave-dev/conclave/internal/operator/serve/enroll"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
)

// newSet returns a Set, and a function that returns its metrics as text.
func newSet(t *testing.T) (*metrics.Set, func() string) {
	t.Helper()
	set, all := metrics.New("v1.2.3")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(all...)
	return set, func() string {
		response := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).
			ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return response.Body.String()
	}
}

func expectLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\nconclave_operator_"+line+"\n") {
			t.Errorf("got no line %s:\n%s", line, text)
		}
	}
}

func TestResultsAreCounted(t *testing.T) {
	set, text := newSet(t)
	set.Enrolled(enroll.Issued)
	set.Enrolled(enroll.NoGroup)
	set.Enrolled(enroll.NoGroup)
	set.Admitted(webhook.Refused)
	expectLines(t, text(), `enrollments_total{result="issued"} 1`, `enrollments_total{result="no_group"} 2`, `enrollments_total{result="pod_gone"} 0`,
		`injections_total{result="refused"} 1`, `injections_total{result="injected"} 0`, `build_info{version="v1.2.3"} 1`)
}

func TestExpiryFollowsRenewals(t *testing.T) {
	set, text := newSet(t)
	ca := time.Unix(1900000000, 0)
	set.AddCertificate("ca", func() time.Time { return ca })
	set.AddServerCertificate("webhook", func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("no file") })
	expectLines(t, text(), `certificate_expiry_timestamp_seconds{certificate="ca"} 1.9e+09`, `certificate_expiry_timestamp_seconds{certificate="webhook"} 0`)
	ca = ca.Add(time.Hour)
	expectLines(t, text(), `certificate_expiry_timestamp_seconds{certificate="ca"} 1.9000036e+09`)
}

type response int

func (r response) RoundTrip(*http.Request) (*http.Response, error) {
	if r == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: int(r), Body: http.NoBody}, nil
}

func TestRefusedWritesAreCounted(t *testing.T) {
	set, text := newSet(t)
	const groups = "/apis/conclave.dev/v1/namespaces/bank/electiongroups/ledger/status"
	for _, c := range []struct {
		method, path string
		response
	}{
		{http.MethodPut, groups, 422},
		{http.MethodPut, groups, 422},
		{http.MethodPost, "/api/v1/namespaces/bank/configmaps", 403},
		{http.MethodPatch, "/api/v1/namespaces/bank/pods/ledger-0", 418},
		{http.MethodDelete, "/api/v1/namespaces/bank/services/ledger", 500},
		{http.MethodPatch, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/conclave", 403},
		{http.MethodPost, "/", 403},
		// None of these is a refused write.
		{http.MethodPut, groups, 200},
		{http.MethodPut, groups, 404},
		{http.MethodPut, groups, 409},
		{http.MethodPut, groups, 429},
		{http.MethodPut, groups, 0},
		{http.MethodGet, "/api/v1/namespaces/bank/pods/ledger-0", 403},
		{http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", 403},
	} {
		request := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		response, err := set.CountRefusedWrites(c.response).RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		if (err != nil) != (c.response == 0) {
			t.Fatalf("%s %s: got error %v", c.method, c.path, err)
		}
	}
	want := []string{
		`writes_refused_total{code="422",resource="electiongroups/status"} 2`,
		`writes_refused_total{code="403",resource="configmaps"} 1`,
		`writes_refused_total{code="other",resource="pods"} 1`,
		`writes_refused_total{code="500",resource="services"} 1`,
		`writes_refused_total{code="403",resource="mutatingwebhookconfigurations"} 1`,
		`writes_refused_total{code="403",resource="other"} 1`,
	}
	expectLines(t, text(), want...)
	if got := strings.Count(text(), "\nconclave_operator_writes_refused_total{"); got != len(want) {
		t.Errorf("got %d series, want %d:\n%s", got, len(want), text())
	}
}
