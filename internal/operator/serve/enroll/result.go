package enroll

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// Result is the outcome of an enrollment: Issued, or why it was refused. There are few, so
// that they can be the values of a metric's label.
type Result string

// The results.
const (
	Issued            Result = "issued"
	Malformed         Result = "malformed"
	TooLarge          Result = "too_large"
	TokenRejected     Result = "token_rejected"
	TokenWithoutPod   Result = "token_without_pod"
	NotOptedIn        Result = "not_opted_in"
	InvalidAnnotation Result = "invalid_annotation"
	NoGroup           Result = "no_group" // The agent waits for a group that selects its pod.
	PodGone           Result = "pod_gone"
	Overloaded        Result = "overloaded"
	Unavailable       Result = "unavailable" // The API server doesn't respond.
	Failed            Result = "failed"
)

// statuses are the HTTP statuses of all results.
var statuses = map[Result]int{
	Issued:            http.StatusOK,
	Malformed:         http.StatusBadRequest,
	TooLarge:          http.StatusRequestEntityTooLarge,
	TokenRejected:     http.StatusUnauthorized,
	TokenWithoutPod:   http.StatusForbidden,
	NotOptedIn:        http.StatusForbidden,
	InvalidAnnotation: http.StatusForbidden,
	NoGroup:           http.StatusForbidden,
	PodGone:           http.StatusConflict,
	Overloaded:        http.StatusServiceUnavailable,
	Unavailable:       http.StatusServiceUnavailable,
	Failed:            http.StatusInternalServerError,
}

// Metric counts enrollments.
type Metric struct{ *prometheus.CounterVec }

// NewMetric returns a Metric. All results have the value 0 from the beginning, so that the first
// refusal is an increase.
func NewMetric() Metric {
	m := Metric{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "conclave_operator_enrollments_total", Help: "Requests of agents for certificates, by result.",
	}, []string{"result"})}
	for result := range statuses {
		m.WithLabelValues(string(result))
	}
	return m
}

// Count counts an enrollment: see Service.Count.
func (m Metric) Count(result Result) { m.WithLabelValues(string(result)).Inc() }

// refusal is an error with its result. Its message is for the agent.
type refusal struct {
	result  Result
	message string
}

func (e *refusal) Error() string { return e.message }

func refuse(result Result, format string, args ...any) error {
	return &refusal{result, fmt.Sprintf(format, args...)}
}

// unavailable makes the agent retry. Only the log contains the cause.
func unavailable(message string, cause error) error {
	return fmt.Errorf("%w: %w", refuse(Unavailable, "%s; retry later", message), cause)
}

// resultAndMessage returns the result of an enrollment with an error, and the message that the agent receives.
func resultAndMessage(err error) (Result, string) {
	if e, ok := errors.AsType[*refusal](err); ok {
		return e.result, e.message
	}
	return Failed, "internal error; retry later"
}
