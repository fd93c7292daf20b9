package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

type response int

func (r response) RoundTrip(*http.Request) (*http.Response, error) {
	if r == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: int(r), Body: http.NoBody}, nil
}

func TestRefusedWritesAreCounted(t *testing.T) {
	refused := newRefusedWrites()
	const groups = "/apis/conclave.dev/v1/namespaces/bank/electiongroups/ledger/status"
	for _, c := range []struct {
		method, path string
		response
	}{
		{http.MethodPut, groups, 422},
		{http.MethodPut, groups, 422},
		{http.MethodPost, "/api/v1/namespaces/bank/services", 403},
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
		response, err := refused.wrap(c.response).RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		if (err != nil) != (c.response == 0) {
			t.Fatalf("%s %s: got error %v", c.method, c.path, err)
		}
	}
	want := []string{
		`conclave_operator_writes_refused_total{code="422",resource="electiongroups/status"} 2`,
		`conclave_operator_writes_refused_total{code="403",resource="services"} 1`,
		`conclave_operator_writes_refused_total{code="other",resource="pods"} 1`,
		`conclave_operator_writes_refused_total{code="500",resource="services"} 1`,
		`conclave_operator_writes_refused_total{code="403",resource="mutatingwebhookconfigurations"} 1`,
		`conclave_operator_writes_refused_total{code="403",resource="other"} 1`,
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(refused)
	response := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	text := response.Body.String()
	for _, line := range want {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("got no line %s:\n%s", line, text)
		}
	}
	if got := strings.Count(text, "\nconclave_operator_writes_refused_total{"); got != len(want) {
		t.Errorf("got %d series, want %d:\n%s", got, len(want), text)
	}
}
