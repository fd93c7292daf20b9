package fakeagent_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// harness is a fake agent of ledger-1 and a client that calls it.
type harness struct {
	t       *testing.T
	agent   *fakeagent.Agent
	address string
	client  *http.Client
}

func newHarness(t *testing.T, caller identity.Name) harness {
	t.Helper()
	factory, err := fakeagent.NewCertificateFactory()
	if err != nil {
		t.Fatal(err)
	}
	var network fakeagent.Network
	role := fakeagent.Identity{Namespace: "bank", Pod: "ledger-1", Groups: []string{"ledger"}, Address: "10.0.0.1:7375", Network: &network}
	agent, err := fakeagent.New(role, factory)
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Stop() })
	pair, err := factory.Authority.Issue(identity.Names{caller}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	held, err := identity.NewInMemory(pair, factory.Authorities)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: network.Dial, TLSClientConfig: held.Client(identity.Name{Domain: "bank", Group: "ledger", Member: "ledger-1"})}
	t.Cleanup(transport.CloseIdleConnections)
	return harness{t, agent, role.Address, &http.Client{Transport: transport}}
}

// do sends a request and returns the status and the body of the response.
func (s harness) do(method, path string, body any) (int, string) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	response := s.open(s.t.Context(), method, path, text)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func (s harness) open(ctx context.Context, method, path string, body []byte) *http.Response {
	s.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+s.address+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	return response
}

// reports opens a stream and returns a function that reads its next event.
func (s harness) reports() func() (kind string, data []byte) {
	s.t.Helper()
	response := s.open(s.t.Context(), http.MethodGet, control.ReportsPath, nil)
	s.t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	return func() (kind string, data []byte) {
		s.t.Helper()
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				kind = value
			}
			if value, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return kind, []byte(value)
			}
		}
		return "", nil
	}
}

// countEvents counts the events until a stream ends.
func countEvents(next func() (string, []byte)) (count int) {
	for kind, _ := next(); kind != ""; kind, _ = next() {
		count++
	}
	return count
}

func (s harness) nextReport(next func() (string, []byte)) control.Report {
	s.t.Helper()
	kind, data := next()
	var r control.Report
	if err := json.Unmarshal(data, &r); err != nil || kind != control.EventGroup {
		s.t.Fatalf("got event %s %s (%v), want a report", kind, data, err)
	}
	return r
}

func document(revision int64, version uint32) control.Document {
	return control.Document{UID: "u", Generation: 7, Revision: revision, Group: control.Group{
		Name: "ledger", List: control.List{Version: version, Members: []control.Member{
			{Name: "ledger-0", Priority: 1, Address: "127.0.0.1:1"}, {Name: "ledger-1", Priority: 2, Address: "127.0.0.1:2"},
		}},
	}}
}

func TestReportsFollowCommandsAndLeadership(t *testing.T) {
	s := newHarness(t, control.Operator)
	next := s.reports()
	if kind, data := next(); kind != control.EventCurrent || !strings.Contains(string(data), `"pod":"ledger-1"`) {
		t.Fatalf("got first event %s %s without any group, want the agent", kind, data)
	}
	if code, answer := s.do(http.MethodPut, control.GroupPath("ledger"), document(10, 1)); code != http.StatusNoContent {
		t.Fatalf("got %d %s for a document, want 204", code, answer)
	}
	r := s.nextReport(next)
	if r.UID != "u" || r.Generation != 7 || r.Revision != 10 || r.Version != 1 || r.Coordinator != "" || !r.Eligible || r.Digest == "" {
		t.Errorf("got report %+v after a document", r)
	}
	elected := time.Now()
	if err := s.agent.SetLeadership("ledger", fakeagent.Leadership{
		Coordinator: "ledger-0", Term: 5, ElectedAt: elected, Crashed: map[string]bool{"ledger-1": true},
	}); err != nil {
		t.Fatal(err)
	}
	r = s.nextReport(next)
	want := control.Row{Name: "ledger-1", Priority: 2, Status: "Crashed"} // The row of ledger-0 is usual.
	if r.Coordinator != "ledger-0" || r.Term != 5 || !r.ElectedAt.Equal(elected) || len(r.Processes) != 1 || r.Processes[0] != want {
		t.Errorf("got report %+v after SetLeadership", r)
	}
	if code, answer := s.do(http.MethodPut, control.GroupPath("ledger")+control.EligibilityPath, map[string]bool{"eligible": false}); code != http.StatusNoContent {
		t.Errorf("got %d %s for a change of eligibility, want 204", code, answer)
	}
	if r = s.nextReport(next); r.Eligible || !r.Excluded {
		t.Errorf("got report %+v after a change of eligibility", r)
	}
	if code, answer := s.do(http.MethodDelete, control.GroupPath("ledger")+"?uid=u", nil); code != http.StatusNoContent {
		t.Errorf("got %d %s for a request to leave, want 204", code, answer)
	}
	if kind, data := next(); kind != control.EventLeft || string(data) != `{"group":"ledger","uid":"u"}` {
		t.Errorf("got event %s %s after a request to leave", kind, data)
	}
	if err := s.agent.SetLeadership("ledger", fakeagent.Leadership{}); err == nil {
		t.Error("SetLeadership succeeded in a group that the agent has left")
	}
}

func TestOlderDocumentIsIgnored(t *testing.T) {
	s := newHarness(t, control.Operator)
	for _, d := range []control.Document{document(10, 2), document(9, 1)} {
		if code, answer := s.do(http.MethodPut, control.GroupPath("ledger"), d); code != http.StatusNoContent {
			t.Fatalf("got %d %s for a document, want 204", code, answer)
		}
	}
	if r, in := s.agent.Report("ledger"); !in || r.Revision != 10 || r.Version != 2 {
		t.Errorf("got report %+v, want the newer document", r)
	}
}

func TestStreamBeginsWithPresentState(t *testing.T) {
	s := newHarness(t, control.Operator)
	s.do(http.MethodPut, control.GroupPath("ledger"), document(10, 1))
	next := s.reports()
	if r := s.nextReport(next); r.Revision != 10 {
		t.Errorf("got report %+v, want revision 10", r)
	}
	if kind, _ := next(); kind != control.EventCurrent {
		t.Errorf("got event %s after the only group, want %s", kind, control.EventCurrent)
	}
}

func TestRefusedCommandHasNoEffect(t *testing.T) {
	s := newHarness(t, control.Operator)
	s.agent.Refuse(func(call fakeagent.Call) int {
		if call.Method == http.MethodDelete {
			return http.StatusConflict
		}
		return 0
	})
	s.do(http.MethodPut, control.GroupPath("ledger"), document(10, 1))
	if code, _ := s.do(http.MethodDelete, control.GroupPath("ledger")+"?uid=u", nil); code != http.StatusConflict {
		t.Errorf("got status %d, want 409", code)
	}
	if _, in := s.agent.Report("ledger"); !in {
		t.Error("the agent left the group although it refused the command")
	}
	if calls := s.agent.Calls(); len(calls) != 2 || calls[1].Path != "/v1/groups/ledger?uid=u" {
		t.Errorf("got calls %v", calls)
	}
}

func TestAgentCanStopAndRunAgain(t *testing.T) {
	s := newHarness(t, control.Operator)
	s.agent.ChangeReport("ledger", func(r *control.Report) { r.Term = 7 })
	next := s.reports()
	s.nextReport(next)
	s.agent.CloseStreams()
	if lines := countEvents(next); lines != 1 {
		t.Errorf("got %d more events after CloseStreams, want 1", lines)
	}
	if err := s.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.agent.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := s.nextReport(s.reports()); r.Term != 7 || r.Pod != "ledger-1" {
		t.Errorf("got report %+v after a restart", r)
	}
}

func TestOnlyTheOperatorIsAdmitted(t *testing.T) {
	s := newHarness(t, identity.Name{Domain: "bank", Group: "ledger", Member: "ledger-0"})
	if code, answer := s.do(http.MethodGet, control.ReportsPath, nil); code != http.StatusForbidden || !strings.Contains(answer, "for the operator") {
		t.Errorf("got %d %s for a peer, want 403", code, answer)
	}
}

func TestInvalidCommandsAreRefused(t *testing.T) {
	s := newHarness(t, control.Operator)
	for _, invalid := range []struct {
		method, path string
		body         any
		code         int
		part         string
	}{
		{http.MethodPut, control.GroupPath("audit"), document(1, 1), http.StatusBadRequest, "about the group"},
		{http.MethodPut, control.GroupPath("ledger"), []int{1}, http.StatusBadRequest, "unmarshal"},
		{http.MethodDelete, control.GroupPath("ledger") + "?uid=u", nil, http.StatusNotFound, "isn't a member"},
		{http.MethodPut, control.GroupPath("ledger") + control.EligibilityPath, map[string]bool{"eligible": true}, http.StatusNotFound, "isn't a member"},
	} {
		if code, answer := s.do(invalid.method, invalid.path, invalid.body); code != invalid.code || !strings.Contains(answer, invalid.part) {
			t.Errorf("%s %s: got %d %s", invalid.method, invalid.path, code, answer)
		}
	}
}
