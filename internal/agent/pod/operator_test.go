package pod

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestInvalidRequestsAreRefusedInOneLine, and change nothing.
func TestInvalidRequestsAreRefusedInOneLine(t *testing.T) {
	c, streams := startCluster(t, "a")
	a := c.pods["a"]
	group := control.GroupPath("ledger")
	other := c.document(9, "a")
	other.Group.Name = "audit"
	unknown := c.document(9, "a")
	unknown.Group.Name = "nowhere"
	unfit := c.document(9, "a")
	unfit.Group.Version = 3
	for _, request := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{http.MethodPut, group, "", 422, "unexpected end of JSON input"},
		{http.MethodPut, group, "{", 422, "unexpected end of JSON input"},
		{http.MethodPut, group, "\x00", 422, "invalid character"},
		{http.MethodPut, group, `{"group":{}}`, 422, "uid: must be a UID"},
		{http.MethodPut, group, strings.Repeat("x", 256<<10+1), 413, "the document must have at most 262144 bytes"},
		{http.MethodPut, group, encode(t, other), 422, "it must be of group ledger, got audit"},
		{http.MethodPut, group, encode(t,
			unfit), 422, "version must be 2, or previous must be the list before version 3, got version 3 after 1"},
		{http.MethodPut, control.GroupPath("nowhere"), encode(t,
			unknown), 404, "the pod is not in the group: it names [audit ledger], not nowhere"},
		{http.MethodDelete, group, "", 400, "uid must be the UID of the group"},
		{http.MethodDelete, group + "?uid=1", "", 400, "revision must be that of the newest document"},
		{http.MethodDelete, control.GroupPath("nowhere") + "?uid=1&revision=1", "", 404, "the pod is not in the group"},
		{http.MethodPut, group +
			control.EligibilityPath, "", 400, `eligible must be true or false, as in {\"eligible\":false}`},
		{http.MethodPut, group + control.EligibilityPath, `{"eligible":1}`, 400, "the body must be a JSON object"},
		{http.MethodPut, control.GroupPath("audit") +
			control.EligibilityPath, `{"eligible":true}`, 404, "the pod is not in the group: the agent has not joined"},
		{http.MethodPost, group + control.StepDownPath, `{"to":"b"}`, 409, "no member is ready to take over"},
		{http.MethodPost, group, "", 405, "method POST is not allowed, use DELETE or PUT"},
		{http.MethodPost, control.ReportsPath, "", 405, "use GET or HEAD"},
		{http.MethodGet, "/v1/nothing", "", 404, "path \\\"/v1/nothing\\\" not found"},
	} {
		status, body := a.callOperatorAPI(a.operator, request.method, request.path, request.body)
		var refusal control.ErrorResponse
		err := json.Unmarshal([]byte(body), &refusal)
		if status != request.status || !strings.Contains(body, request.want) || err != nil || strings.Contains(body, "\n") {
			t.Errorf("%s %s %.40q: got %d %s, want %d %s", request.method, request.path, request.body, status, body,
				request.status, request.want)
		}
	}
	a.push(c.document(2, "a"))
	streams["a"].await("it has revision 2, and no problems", func(r control.Report) bool {
		return r.Revision == 2 && r.Coordinator == "a" && len(r.Problems) == 0
	})
}

// TestExclusion: an excluded coordinator hands over first, and isn't excluded if no other process can take over.
func TestExclusion(t *testing.T) {
	c, streams := startClusterWith(t, steady, "a", "b", "c")
	setEligible := func(name string, eligible bool) int {
		status, _ := c.pods[name].callOperatorAPI(c.operator, http.MethodPut,
			control.GroupPath("ledger")+control.EligibilityPath, fmt.Sprintf(`{"eligible":%t}`, eligible))
		return status
	}
	expectSetEligible := func(name string, eligible bool, want int) {
		t.Helper()
		must.Equalf(t, setEligible(name, eligible), want, "%s: for eligible=%t", name, eligible)
	}
	testwait.Until(t, "another process is ready to take over from c",
		func() bool { return setEligible("c", false) == http.StatusNoContent })
	for name, s := range streams {
		s.await("b is the coordinator", func(r control.Report) bool {
			return r.Coordinator == "b" && r.Excluded == (name == "c") && r.Eligible != r.Excluded
		})
	}
	c.pods["a"].end()
	streams["b"].await("a has crashed", func(r control.Report) bool {
		return slices.ContainsFunc(r.Processes,
			func(row control.Row) bool { return row.Name == "a" && row.Status == "Crashed" })
	})
	expectSetEligible("b", false, http.StatusConflict)
	if r := decodeReport(t, c.pods["b"].watch().next()); r.Coordinator != "b" || !r.Eligible || r.Excluded {
		t.Errorf("got %+v, want b to remain coordinator", r)
	}
	expectSetEligible("c", true, http.StatusNoContent)
	for _, name := range []string{"b", "c"} {
		streams[name].await("c is the coordinator", hasCoordinator("c"))
	}
}

// TestExclusionEndsWithoutOperator: it lasts as long as an operator reads the reports.
func TestExclusionEndsWithoutOperator(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b"} {
		c.add(name)
	}
	c.pods["b"].settings.OperatorAbsence = 200 * time.Millisecond
	c.publish(c.document(1, "a", "b"))
	for _, name := range []string{"a", "b"} {
		c.pods[name].start()
	}
	b := c.pods["b"]
	first, second, observer := b.watch(), b.watch(), c.pods["a"].watch()
	observer.await("b is the coordinator", hasCoordinator("b"))
	testwait.Until(t, "b is excluded", func() bool {
		status, _ := b.callOperatorAPI(c.operator, http.MethodPut,
			control.GroupPath("ledger")+control.EligibilityPath, `{"eligible":false}`)
		return status == http.StatusNoContent
	})
	observer.await("a is the coordinator", hasCoordinator("a"))
	second.await("b is excluded", func(r control.Report) bool { return r.Excluded })
	first.close()
	time.Sleep(2 * b.settings.OperatorAbsence)
	c.pushAll(c.document(2, "a", "b"))()
	second.await("it has revision 2", func(r control.Report) bool {
		if !r.Excluded {
			t.Errorf("got %+v, want b excluded while an operator reads the reports", r)
		}
		return r.Revision == 2 && r.Coordinator == "a"
	})
	second.close()
	observer.await("b is the coordinator again", hasCoordinator("b"))
	b.watch().await("b reports that it is eligible",
		func(r control.Report) bool { return !r.Excluded && r.Eligible && r.Coordinator == "b" })
}

// TestReportStreamsAreLimitedToEight: when one ends, another one can start.
func TestReportStreamsAreLimitedToEight(t *testing.T) {
	c, streams := startCluster(t, "a")
	a := c.pods["a"]
	for range 7 {
		a.watch()
	}
	if status, body := a.callOperatorAPI(c.operator, http.MethodGet, control.ReportsPath,
		""); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "at most 8 are allowed") {
		t.Errorf("got %d %s for a ninth stream, want 503", status, body)
	}
	streams["a"].close()
	testwait.Until(t, "another stream can start", func() bool {
		client := a.httpClient(c.operator)
		response, err := client.Get(a.operatorURL(control.ReportsPath))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// stream is the stream of reports of one agent.
type stream struct {
	t      *testing.T
	name   string
	events chan event
	close  func()
}

type event struct{ kind, data string }

// watch opens the stream as soon as possible.
func (g *testPod) watch() *stream {
	g.t.Helper()
	return g.watchPath(control.ReportsPath)
}

func (g *testPod) watchPath(path string) *stream {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	s := &stream{t: g.t, name: g.name, events: make(chan event, 4096), close: cancel}
	var response *http.Response
	testwait.Until(g.t, g.name+" opens a stream", func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.operatorURL(path), nil)
		must.Succeed(g.t, err)
		client := g.httpClient(g.operator)
		client.Timeout = 0
		response, err = client.Do(request) //nolint:bodyclose // The goroutine below closes it.
		return err == nil
	})
	if response.StatusCode != http.StatusOK {
		g.t.Fatalf("%s: got status %s", g.name, response.Status)
	}
	g.t.Cleanup(cancel)
	go func() {
		defer close(s.events)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		var e event
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e.kind = kind
			} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				e.data = data
				s.events <- e
			}
		}
	}()
	return s
}

// next returns the next event.
func (s *stream) next() event {
	s.t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			s.t.Fatalf("the stream of %s has ended", s.name)
		}
		return e
	case <-time.After(testwait.Limit):
		s.t.Fatalf("timed out waiting for an event of %s", s.name)
	}
	return event{}
}

// awaitLeft waits for the event that a group was left, and returns its data.
func (s *stream) awaitLeft() string {
	s.t.Helper()
	for {
		if e := s.next(); e.kind == control.EventLeft {
			return e.data
		}
	}
}

// await waits for a matching report.
func (s *stream) await(what string, wanted func(control.Report) bool) control.Report {
	s.t.Helper()
	var last string
	for start := time.Now(); time.Since(start) < testwait.Limit; {
		e := s.next()
		if e.kind != control.EventGroup {
			continue
		}
		last = e.data
		if r := decodeReport(s.t, e); wanted(r) {
			return r
		}
	}
	s.t.Fatalf("%s: timed out waiting until %s; last report: %s", s.name, what, last)
	return control.Report{}
}

func decodeReport(t *testing.T, e event) control.Report {
	t.Helper()
	var r control.Report
	decoder := json.NewDecoder(strings.NewReader(e.data))
	decoder.DisallowUnknownFields()
	must.Succeedf(t, decoder.Decode(&r), "%s", e.data)
	return r
}

func hasCoordinator(name string) func(control.Report) bool {
	return func(r control.Report) bool { return r.Coordinator == name }
}
