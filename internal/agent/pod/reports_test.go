package pod

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// TestAPodBeginsAndReports: enrolment brings the certificate and the documents, the
// agents elect, and the operator hears of it.
func TestAPodBeginsAndReports(t *testing.T) {
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
		r := s.await("c leads, and all are connected", func(r control.Report) bool {
			connected := 0
			for _, row := range r.Processes {
				if row.Connected {
					connected++
				}
			}
			return r.Coordinator == "c" && connected == 3
		})
		if r.Group != "ledger" || r.Pod != name || r.UID != "uid-1" || r.Generation != 1 || r.Revision != 7 || r.Version != 1 ||
			r.Digest == "" || r.Term == 0 || r.ElectedAt.IsZero() || r.ChangedAt.IsZero() || !r.Eligible || r.Electing || len(r.Problems) > 0 {
			t.Errorf("%s reports %+v", name, r)
		}
	}
}

// TestAStreamBeginsWithThePresentState, all of it, and then says so.
func TestAStreamBeginsWithThePresentState(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	c.publish(c.document(1, "a"))
	a.start().watch().await("a leads", hasCoordinator("a"))
	s := a.watch()
	if r := decodeReport(t, s.next()); r.Coordinator != "a" || r.Group != "ledger" {
		t.Errorf("the first event is %+v", r)
	}
	e := s.next()
	var agent control.Agent
	if err := json.Unmarshal([]byte(e.data), &agent); err != nil || e.kind != control.EventCurrent || agent.Pod != "a" || agent.Life == 0 ||
		!slices.Equal(agent.Groups, []string{"ledger", "audit"}) {
		t.Errorf("the second event is %+v: %+v, %v", e, agent, err)
	}
}

// TestOnlyTheOperatorCommands: an agent's own certificate won't do, nor none.
func TestOnlyTheOperatorCommands(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	c.publish(c.document(1, "a"))
	a.start().watch().await("a leads", hasCoordinator("a"))
	agents := c.certificate(identity.Name{Domain: "bank", Group: "ledger", Member: "a"})
	group := control.GroupPath("ledger")
	for _, ask := range []struct{ method, path, body string }{
		{http.MethodGet, control.ReportsPath, ""},
		{http.MethodPut, group, string(documentYAML(t, c.document(2, "a")))},
		{http.MethodDelete, group + "?uid=uid-1", ""},
		{http.MethodPost, group + control.StepDownPath, ""},
		{http.MethodPut, group + control.EligibilityPath, `{"eligible":false}`},
	} {
		for who, files := range map[string]*identity.Files{"nobody": nil, "an agent": agents} {
			status, body := a.callOperatorAPI(files, ask.method, ask.path, ask.body)
			if status != http.StatusForbidden || !strings.Contains(body, "this is for the operator") {
				t.Errorf("%s %s by %s: %d %s", ask.method, ask.path, who, status, body)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, body := a.callOperatorAPI(nil, http.MethodGet, path, ""); status != http.StatusOK && path != "/readyz" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	stranger := newCluster(t)
	if status, body := a.callOperatorAPI(stranger.operator, http.MethodGet, control.ReportsPath, ""); status != 0 {
		t.Errorf("an operator of another authority is answered: %d %s", status, body)
	}
}
