package pod

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestPodsEnrollElectAndReport: the agents enroll for certificates and documents, elect
// a coordinator, and report it to the operator.
func TestPodsEnrollElectAndReport(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b", "c"} {
		c.add(name)
	}
	c.publish(c.document(7, "a", "b", "c"))
	streams := map[string]*stream{}
	for name, g := range c.pods {
		streams[name] = g.start().watch()
	}
	for name, s := range streams {
		r := s.await("c is the coordinator, and all are connected", func(r control.Report) bool {
			return r.Coordinator == "c" && len(r.Processes) == 0
		})
		if r.Group != "ledger" || r.Pod != name || r.UID != "uid-1" || r.Generation != 1 ||
			r.Revision != 7 || r.Version != 1 ||
			r.Digest == "" || r.Term == 0 || r.ElectedAt.IsZero() || r.ChangedAt.IsZero() || !r.Eligible ||
			r.Electing || len(r.Problems) > 0 {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// TestReportsOverHTTP10: the operator asks for the stream by HTTP/1.0, so that it isn't sent in chunks.
func TestReportsOverHTTP10(t *testing.T) {
	c, _ := startCluster(t, "a")
	a := c.pods["a"]
	conn, err := (&tls.Dialer{Config: c.operator.Client()}).DialContext(t.Context(), "tcp", a.settings.Operator)
	must.Succeed(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+control.ReportsPath+" HTTP/1.0\r\nHost: a\r\n\r\n")
	must.Succeed(t, err)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	must.Succeed(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || len(response.TransferEncoding) > 0 || response.ContentLength >= 0 {
		t.Fatalf("got %+v, want a body that ends with the connection", response)
	}
	for _, want := range []string{"event: group\n", "data: {", "\n", "event: current\n"} {
		if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("got line %q and error %v, want %q", line, err, want)
		}
	}
}

// TestOnlyOperatorMayCommand: requests without a certificate, or with that of an agent, are refused.
func TestOnlyOperatorMayCommand(t *testing.T) {
	c, _ := startCluster(t, "a")
	a := c.pods["a"]
	agents := c.certificate(identity.Name{Domain: "bank", Group: "ledger", Member: "a"})
	group := control.GroupPath("ledger")
	for _, request := range []struct{ method, path, body string }{
		{http.MethodGet, control.ReportsPath, ""},
		{http.MethodPut, group, encode(t, c.document(2, "a"))},
		{http.MethodDelete, group + "?uid=uid-1&revision=1", ""},
		{http.MethodPost, group + control.StepDownPath, ""},
		{http.MethodPut, group + control.EligibilityPath, `{"eligible":false}`},
	} {
		for client, files := range map[string]*identity.Files{"no certificate": nil, "an agent": agents} {
			status, body := a.callOperatorAPI(files, request.method, request.path, request.body)
			if status != http.StatusForbidden || !strings.Contains(body, "only the operator may use this path") {
				t.Errorf("%s %s with the certificate of %s: got %d %s", request.method, request.path, client, status, body)
			}
		}
	}
	// The pod has no document of the group audit, so the agent isn't ready.
	const secret = "group audit: waiting for its document"
	reader := c.certificate(control.MetricsReader)
	for _, request := range []struct {
		client *identity.Files
		path   string
		status int
		body   string
	}{
		{nil, "/healthz", http.StatusOK, ""},
		{nil, "/readyz", http.StatusServiceUnavailable, ""},
		{agents, "/readyz", http.StatusServiceUnavailable, ""},
		{reader, "/healthz", http.StatusOK, "ok"},
		{reader, "/readyz", http.StatusServiceUnavailable, secret},
		{c.operator, "/readyz", http.StatusServiceUnavailable, secret},
	} {
		if status, body := a.callOperatorAPI(request.client, http.MethodGet, request.path, ""); status != request.status ||
			body != request.body {
			t.Errorf("%s: got %d %q, want %d %q", request.path, status, body, request.status, request.body)
		}
	}
	for client, want := range map[*identity.Files]int{
		nil: http.StatusForbidden, agents: http.StatusForbidden, reader: http.StatusOK, c.operator: http.StatusOK,
	} {
		status, body := a.callOperatorAPI(client, http.MethodGet, "/metrics", "")
		if status != want || strings.Contains(body, "conclave_leading") != (want == http.StatusOK) {
			t.Errorf("/metrics: got %d %.200s, want %d", status, body, want)
		}
	}
	expect.Equalf(t, a.scrape(reader, identity.AgentHost), http.StatusOK,
		"status of /metrics for a reader that verifies the agent by its host")
	expect.Equalf(t, a.scrape(reader, "other.conclave.dev"), 0, "status of /metrics for a reader that wants another host")
	wantStatus(t, "metrics only", http.StatusForbidden)(a.callOperatorAPI(reader, http.MethodGet, control.ReportsPath, ""))
	other := newSequentialCluster(t)
	wantStatus(t, "another CA", 0)(a.callOperatorAPI(other.operator, http.MethodGet, control.ReportsPath, ""))
}
