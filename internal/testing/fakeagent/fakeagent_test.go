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

// stage is an understudy of ledger-1, and somebody who calls it.
type stage struct {
	t       *testing.T
	agent   *fakeagent.Agent
	address string
	client  *http.Client
}

func newStage(t *testing.T, caller identity.Name) stage {
	t.Helper()
	wardrobe, err := fakeagent.NewCertificateFactory()
	if err != nil {
		t.Fatal(err)
	}
	var network fakeagent.Network
	role := fakeagent.Identity{Namespace: "bank", Pod: "ledger-1", Groups: []string{"ledger"}, Address: "10.0.0.1:7375", Network: &network}
	agent, err := fakeagent.New(role, wardrobe)
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Stop() })
	pair, err := wardrobe.Authority.Issue(identity.Names{caller}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	held, err := identity.Hold(pair, wardrobe.Authorities)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: network.Dial, TLSClientConfig: held.Client(identity.Name{Domain: "bank", Group: "ledger", Member: "ledger-1"})}
	t.Cleanup(transport.CloseIdleConnections)
	return stage{t, agent, role.Address, &http.Client{Transport: transport}}
}

// ask sends a request and returns the status with what was answered.
func (s stage) ask(method, path string, body any) (int, string) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	response := s.open(s.t.Context(), method, path, text)
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(said)
}

func (s stage) open(ctx context.Context, method, path string, body []byte) *http.Response {
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

// reports returns a function that returns the next event of a stream.
func (s stage) reports() func() (kind string, data []byte) {
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

// rest is how much is said until a stream ends.
func rest(next func() (string, []byte)) (count int) {
	for kind, _ := next(); kind != ""; kind, _ = next() {
		count++
	}
	return count
}

func (s stage) nextReport(next func() (string, []byte)) control.Report {
	s.t.Helper()
	kind, data := next()
	var r control.Report
	if err := json.Unmarshal(data, &r); err != nil || kind != control.EventGroup {
		s.t.Fatalf("%s %s is no report (%v)", kind, data, err)
	}
	return r
}

func document(revision int64, version uint32) control.Document {
	return control.Document{UID: "u", Generation: 7, Revision: revision, Group: control.Group{
		Name: "ledger", Version: version, Members: []control.Member{
			{Name: "ledger-0", Priority: 1, Address: "127.0.0.1:1"}, {Name: "ledger-1", Priority: 2, Address: "127.0.0.1:2"},
		},
	}}
}

func TestItReportsWhatItIsToldAndWhatIsDecreed(t *testing.T) {
	s := newStage(t, control.Operator)
	next := s.reports()
	if kind, data := next(); kind != control.EventCurrent || !strings.Contains(string(data), `"pod":"ledger-1"`) {
		t.Fatalf("before it is in any group, it says %s %s", kind, data)
	}
	if code, said := s.ask(http.MethodPut, control.GroupPath("ledger"), document(10, 1)); code != http.StatusNoContent {
		t.Fatalf("a document is answered with %d %s", code, said)
	}
	r := s.nextReport(next)
	if r.UID != "u" || r.Generation != 7 || r.Revision != 10 || r.Version != 1 || r.Coordinator != "" || !r.Eligible || r.Digest == "" {
		t.Errorf("told a document, it reports %+v", r)
	}
	elected := time.Now()
	if err := s.agent.SetLeadership("ledger", fakeagent.Leadership{
		Coordinator: "ledger-0", Term: 5, ElectedAt: elected, Crashed: map[string]bool{"ledger-1": true},
	}); err != nil {
		t.Fatal(err)
	}
	r = s.nextReport(next)
	want := []control.Row{{Name: "ledger-1", Priority: 2, Status: "Crashed"}, {Name: "ledger-0", Priority: 1, Status: "Coordinator", Connected: true}}
	if r.Coordinator != "ledger-0" || r.Term != 5 || !r.ElectedAt.Equal(elected) || len(r.Processes) != 2 || r.Processes[0] != want[0] || r.Processes[1] != want[1] {
		t.Errorf("decreed a coordinator, it reports %+v", r)
	}
	if code, said := s.ask(http.MethodPut, control.GroupPath("ledger")+control.EligibilityPath, map[string]bool{"eligible": false}); code != http.StatusNoContent {
		t.Errorf("told not to stand, it answers %d %s", code, said)
	}
	if r = s.nextReport(next); r.Eligible || !r.Excluded {
		t.Errorf("told not to stand, it reports %+v", r)
	}
	if code, said := s.ask(http.MethodDelete, control.GroupPath("ledger")+"?uid=u", nil); code != http.StatusNoContent {
		t.Errorf("told to leave, it answers %d %s", code, said)
	}
	if kind, data := next(); kind != control.EventLeft || string(data) != `{"group":"ledger","uid":"u"}` {
		t.Errorf("told to leave, it says %s %s", kind, data)
	}
	if err := s.agent.SetLeadership("ledger", fakeagent.Leadership{}); err == nil {
		t.Error("it obeys in a group that it has left")
	}
}

func TestAnOlderDocumentCountsForNothing(t *testing.T) {
	s := newStage(t, control.Operator)
	for _, d := range []control.Document{document(10, 2), document(9, 1)} {
		if code, said := s.ask(http.MethodPut, control.GroupPath("ledger"), d); code != http.StatusNoContent {
			t.Fatalf("a document is answered with %d %s", code, said)
		}
	}
	if r, in := s.agent.Report("ledger"); !in || r.Revision != 10 || r.Version != 2 {
		t.Errorf("it goes by %+v", r)
	}
}

func TestAStreamBeginsWithWhatThereIs(t *testing.T) {
	s := newStage(t, control.Operator)
	s.ask(http.MethodPut, control.GroupPath("ledger"), document(10, 1))
	next := s.reports()
	if r := s.nextReport(next); r.Revision != 10 {
		t.Errorf("it reports %+v", r)
	}
	if kind, _ := next(); kind != control.EventCurrent {
		t.Errorf("after its only group, it says %s", kind)
	}
	if received, sent := s.agent.Traffic(); received == 0 || sent == 0 {
		t.Errorf("%d bytes came and %d went", received, sent)
	}
}

// What it is made to refuse it doesn't do, but it was told.
func TestItRefusesWhatItIsMadeToRefuse(t *testing.T) {
	s := newStage(t, control.Operator)
	s.agent.Refuse(func(call fakeagent.Call) int {
		if call.Method == http.MethodDelete {
			return http.StatusConflict
		}
		return 0
	})
	s.ask(http.MethodPut, control.GroupPath("ledger"), document(10, 1))
	if code, _ := s.ask(http.MethodDelete, control.GroupPath("ledger")+"?uid=u", nil); code != http.StatusConflict {
		t.Errorf("it answers with %d", code)
	}
	if _, in := s.agent.Report("ledger"); !in {
		t.Error("it has left the group")
	}
	if calls := s.agent.Calls(); len(calls) != 2 || calls[1].Path != "/v1/groups/ledger?uid=u" {
		t.Errorf("it was told %v", calls)
	}
}

func TestItCanBeCutOffAndComeBack(t *testing.T) {
	s := newStage(t, control.Operator)
	s.agent.ChangeReport("ledger", func(r *control.Report) { r.Term = 7 })
	next := s.reports()
	s.nextReport(next)
	s.agent.CloseStreams()
	if lines := rest(next); lines != 1 {
		t.Errorf("after a drop it says %d things more", lines)
	}
	if err := s.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.agent.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := s.nextReport(s.reports()); r.Term != 7 || r.Pod != "ledger-1" {
		t.Errorf("come back, it says %+v", r)
	}
}

func TestNobodyElseIsHeard(t *testing.T) {
	s := newStage(t, identity.Name{Domain: "bank", Group: "ledger", Member: "ledger-0"})
	if code, said := s.ask(http.MethodGet, control.ReportsPath, nil); code != http.StatusForbidden || !strings.Contains(said, "for the operator") {
		t.Errorf("a peer is answered with %d %s", code, said)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	s := newStage(t, control.Operator)
	for _, nonsense := range []struct {
		method, path string
		body         any
		code         int
		part         string
	}{
		{http.MethodPut, control.GroupPath("audit"), document(1, 1), http.StatusBadRequest, "about the group"},
		{http.MethodPut, control.GroupPath("ledger"), []int{1}, http.StatusBadRequest, "unmarshal"},
		{http.MethodDelete, control.GroupPath("ledger") + "?uid=u", nil, http.StatusNotFound, "no part"},
		{http.MethodPut, control.GroupPath("ledger") + control.EligibilityPath, map[string]bool{"eligible": true}, http.StatusNotFound, "no part"},
	} {
		if code, said := s.ask(nonsense.method, nonsense.path, nonsense.body); code != nonsense.code || !strings.Contains(said, nonsense.part) {
			t.Errorf("%s %s is answered with %d %s", nonsense.method, nonsense.path, code, said)
		}
	}
}
