package check

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/plugin/check/rules"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestReadMeasurement asks agents that have measured, that make no sense, that refuse, and that can't be reached.
func TestReadMeasurement(t *testing.T) {
	answers := map[string]struct {
		status int
		body   string
	}{
		"new": {
			http.StatusOK, `{"group":"ledger","timing":{"heartbeatMillis":100,"suspicionTimeoutMillis":400,"leaseMillis":500},` +
				`"processes":[{"name":"a","answers":{"count":7,"p99Micros":900,"longestMicros":950}},{"name":"b"},{"name":"new"}]}`,
		},
		"silent":   {http.StatusOK, `{"group":"ledger","processes":[{"name":"a"},{"name":"silent"}]}`},
		"nonsense": {http.StatusOK, `{"timing":{"heartbeatMillis":100,"suspicionTimeoutMillis":100}}`},
		"broken":   {http.StatusOK, `{"timing":[]}`},
		"left":     {http.StatusServiceUnavailable, `{"error":"the agent has left the group"}`},
	}
	agents := http.NewServeMux()
	agents.HandleFunc("GET /{pod}/v1/groups/ledger/status", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(answers[r.PathValue("pod")].status)
		_, _ = w.Write([]byte(answers[r.PathValue("pod")].body)) // The client sees an error.
	})
	server := httptest.NewServer(agents)
	t.Cleanup(server.Close)
	forward := func(_ context.Context, pod types.NamespacedName) (*portforward.Port, error) {
		if pod.Name == "missing" {
			return nil, errors.New(`error upgrading connection: unable to upgrade connection: pods "missing" not found`)
		}
		return portforward.At(server.URL+"/"+pod.Name, ""), nil
	}
	for pod, want := range map[string]struct {
		measurement rules.Measurement
		failure     string
	}{
		"new": {measurement: rules.Measurement{
			Timing: control.TimingInForce{HeartbeatMillis: 100, SuspicionTimeoutMillis: 400, LeaseMillis: 500}, Size: 3,
			Members: []rules.MemberAnswers{{Pod: "a", Answers: control.Answers{Count: 7, P99Micros: 900, LongestMicros: 950}}},
		}},
		"silent":   {failure: "the agent in pod silent reports a suspicion timeout of 0 ms and a heartbeat of 0 ms"},
		"nonsense": {failure: "the agent in pod nonsense reports a suspicion timeout of 100 ms and a heartbeat of 100 ms"},
		"broken": {
			failure: "cannot parse the status of broken: json: cannot unmarshal array into Go struct field .Timing of " +
				"type control.TimingInForce",
		},
		"left":    {failure: "left: the agent has left the group"},
		"missing": {failure: `missing: pods "missing" not found`},
	} {
		g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
		g.Status.Coordinator = &v1.Coordinator{Pod: pod}
		got, err := readMeasurement(t.Context(), g, forward)
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		if failure != want.failure || !reflect.DeepEqual(got, want.measurement) {
			t.Errorf("%s: got %+v, %q, want %+v, %q", pod, got, failure, want.measurement, want.failure)
		}
	}
}
