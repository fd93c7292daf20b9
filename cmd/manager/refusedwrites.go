package main

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// refusedWrites counts the writes that the API server refuses.
type refusedWrites struct{ *prometheus.CounterVec }

func newRefusedWrites() refusedWrites {
	return refusedWrites{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "conclave_operator_writes_refused_total", Help: "Writes that the API server refused, by resource and HTTP status.",
	}, []string{"resource", "code"})}
}

// wrap wraps the transport of a client of the API server: all writes of the operator pass
// through it, whichever part of it they come from.
func (w refusedWrites) wrap(next http.RoundTripper) http.RoundTripper {
	return &countingTransport{next, w}
}

// countingTransport counts refused writes.
type countingTransport struct {
	http.RoundTripper

	refused refusedWrites
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && refusedWrite(request.Method, response.StatusCode) {
		if resource := resourceOf(request.URL.Path); !reviews[resource] {
			t.refused.WithLabelValues(resource, codeOf(response.StatusCode)).Inc()
		}
	}
	return response, err
}

var _ utilnet.RoundTripperWrapper = (*countingTransport)(nil)

// WrappedRoundTripper lets client-go find the transport. Otherwise it logs a warning for each request that takes too long.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// refusedWrite reports whether the API server has refused a write. Some responses don't mean
// that: the operator reads the object again after a conflict, or when it is gone or exists
// already, and client-go repeats what the API server defers.
func refusedWrite(method string, status int) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	switch status {
	case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return status >= http.StatusBadRequest
}

// reviews are requests that are sent like writes, but write nothing.
var reviews = map[string]bool{"tokenreviews": true, "subjectaccessreviews": true}

// codes are the statuses by which API servers refuse writes. An admission webhook may respond
// with any other.
var codes = map[int]bool{
	http.StatusBadRequest: true, http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusRequestEntityTooLarge: true,
	http.StatusUnsupportedMediaType: true, http.StatusUnprocessableEntity: true, http.StatusInternalServerError: true,
	http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}

func codeOf(status int) string {
	if codes[status] {
		return strconv.Itoa(status)
	}
	return "other"
}

// resourceOf returns the resource, and the subresource, that the path of a request names:
//
//	/api/v1/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE
//	/apis/GROUP/VERSION/RESOURCE/NAME/SUBRESOURCE
//
// The operator writes few kinds, so there are few results.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "api":
		parts = parts[min(2, len(parts)):]
	case "apis":
		parts = parts[min(3, len(parts)):]
	default:
		return "other"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch len(parts) {
	case 0:
		return "other"
	case 1, 2:
		return parts[0]
	}
	return parts[0] + "/" + parts[2]
}
