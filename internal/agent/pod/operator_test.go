package pod

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestNonsenseIsRefusedInOneLine, and changes nothing.
func TestNonsenseIsRefusedInOneLine(t *testing.T) {
	c, streams := startCluster(t, "a")
	a := c.pods["a"]
	group := control.GroupPath("ledger")
	other := c.document(9, "a")
	other.Group.Name = "audit"
	unknown := c.document(9, "a")
	unknown.Group.Name = "nowhere"
	unfit := c.document(9, "a")
	unfit.Group.Version = 3
	for _, ask := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{http.MethodPut, group, "", 422, "the document is empty"},
		{http.MethodPut, group, "{", 422, "this is no YAML"},
		{http.MethodPut, group, "\x00", 422, "no text in UTF-8"},
		{http.MethodPut, group, `{"group":{}}`, 422, "the document lacks uid"},
		{http.MethodPut, group, strings.Repeat("x", 1<<20+1), 413, "a document can have 1048576 bytes at most"},
		{http.MethodPut, group, string(documentYAML(t, other)), 422, "it is of group audit, and not of ledger"},
		{http.MethodPut, group, string(documentYAML(t, unfit)), 422, "version jumps from 1 to 3: write version 2, or the list of version 2 as previous"},
		{http.MethodPut, control.GroupPath("nowhere"), string(documentYAML(t, unknown)), 404, "this pod is in no such group: it names [audit ledger], and not nowhere"},
		{http.MethodDelete, group, "", 400, "say which group of this name is to be left"},
		{http.MethodDelete, control.GroupPath("nowhere") + "?uid=1", "", 404, "this pod is in no such group"},
		{http.MethodPut, group + control.EligibilityPath, "", 400, `say whether it may lead, as in {\"eligible\":false}`},
		{http.MethodPut, group + control.EligibilityPath, `{"eligible":1}`, 400, "the body must be a JSON object"},
		{http.MethodPut, control.GroupPath("audit") + control.EligibilityPath, `{"eligible":true}`, 404, "this pod is in no such group that it takes part in"},
		{http.MethodPost, group + control.StepDownPath, `{"to":"b"}`, 409, "nobody is ready to take over"},
		{http.MethodPost, group, "", 405, "POST is not possible here, only DELETE, PUT"},
		{http.MethodPost, control.ReportsPath, "", 405, "only GET, HEAD"},
		{http.MethodGet, "/v1/nothing", "", 404, "there is nothing at"},
	} {
		status, body := a.callOperatorAPI(a.operator, ask.method, ask.path, ask.body)
		var refusal control.ErrorResponse
		err := json.Unmarshal([]byte(body), &refusal)
		if status != ask.status || !strings.Contains(body, ask.says) || err != nil || strings.Contains(body, "\n") {
			t.Errorf("%s %s %.40q is answered with %d %s", ask.method, ask.path, ask.body, status, body)
		}
	}
	a.push(c.document(2, "a"))
	streams["a"].await("it goes by revision 2, and all is well", func(r control.Report) bool {
		return r.Revision == 2 && r.Coordinator == "a" && len(r.Problems) == 0
	})
}

// TestWithholding hands over first, lasts until further notice, and isn't done where
// nobody else could lead.
func TestWithholding(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	tell := func(name string, may bool) int {
		status, _ := c.pods[name].callOperatorAPI(c.operator, http.MethodPut, control.GroupPath("ledger")+control.EligibilityPath, fmt.Sprintf(`{"eligible":%t}`, may))
		return status
	}
	standing := func(name string, may bool, wanted int) {
		t.Helper()
		if status := tell(name, may); status != wanted {
			t.Fatalf("%s is told standing=%t, and answers %d", name, may, status)
		}
	}
	eventually(t, "somebody is ready to take over from c", func() bool { return tell("c", false) == http.StatusNoContent })
	for name, s := range streams {
		s.await("b leads", func(r control.Report) bool {
			return r.Coordinator == "b" && r.Excluded == (name == "c") && r.Eligible != r.Excluded
		})
	}
	next := c.document(2, "a", "b", "c") // It joins again, and is still withheld.
	next.Group.Preemption.StableSeconds = 1
	pushed := c.pushAll(next)
	defer pushed()
	for name, s := range streams {
		s.await("b leads by revision 2", func(r control.Report) bool {
			return r.Revision == 2 && r.Coordinator == "b" && r.Excluded == (name == "c")
		})
	}
	c.pods["a"].end()
	streams["b"].await("a is gone", func(r control.Report) bool {
		return slices.ContainsFunc(r.Processes, func(row control.Row) bool { return row.Name == "a" && row.Status == "Crashed" })
	})
	standing("b", false, http.StatusConflict)
	if r := decodeReport(t, c.pods["b"].watch().next()); r.Coordinator != "b" || !r.Eligible || r.Excluded {
		t.Errorf("b reports %+v", r)
	}
	standing("c", true, http.StatusNoContent)
	for _, name := range []string{"b", "c"} {
		streams[name].await("c leads", hasCoordinator("c"))
	}
}

// TestWithholdingEndsWithTheOperator: it lasts while one of them listens, and not for
// good.
func TestWithholdingEndsWithTheOperator(t *testing.T) {
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
	first, second, onlooker := b.watch(), b.watch(), c.pods["a"].watch()
	onlooker.await("b leads", hasCoordinator("b"))
	eventually(t, "b is withheld", func() bool {
		status, _ := b.callOperatorAPI(c.operator, http.MethodPut, control.GroupPath("ledger")+control.EligibilityPath, `{"eligible":false}`)
		return status == http.StatusNoContent
	})
	onlooker.await("a leads", hasCoordinator("a"))
	second.await("b is withheld", func(r control.Report) bool { return r.Excluded })
	first.close()
	next := c.document(2, "a", "b") // They join again, which takes a lease: b wouldn't have waited for so long.
	next.Group.Preemption.StableSeconds = 1
	c.pushAll(next)()
	second.await("it goes by revision 2", func(r control.Report) bool {
		if !r.Excluded {
			t.Errorf("it stands while an operator listens: %+v", r)
		}
		return r.Revision == 2 && r.Coordinator == "a"
	})
	second.close()
	onlooker.await("b leads again", hasCoordinator("b"))
	b.watch().await("b says that it stands", func(r control.Report) bool { return !r.Excluded && r.Eligible && r.Coordinator == "b" })
}

// TestSteppingDown by the operator's word.
func TestSteppingDown(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	next := c.document(2, "a", "b", "c")
	next.Group.Preemption.Policy = "Never"
	pushed := c.pushAll(next)
	defer pushed()
	for _, stream := range streams {
		stream.await("it goes by revision 2", hasRevision(2))
	}
	// Whoever leads now: while they joined again, one after the other, that has changed.
	var leader string
	var successor struct{ Coordinator string }
	eventually(t, "somebody steps down", func() bool {
		for name, pod := range c.pods {
			status, answer := pod.callOperatorAPI(c.operator, http.MethodPost, control.GroupPath("ledger")+control.StepDownPath, "{}")
			if status == http.StatusOK {
				leader = name
				return json.Unmarshal([]byte(answer), &successor) == nil
			}
		}
		return false
	})
	if successor.Coordinator == "" || successor.Coordinator == leader {
		t.Errorf("after %s, %q leads", leader, successor.Coordinator)
	}
	streams["a"].await("another one leads", hasCoordinator(successor.Coordinator))
}

// TestEightReadAtMost, and room is made when one leaves.
func TestEightReadAtMost(t *testing.T) {
	c, streams := startCluster(t, "a")
	a := c.pods["a"]
	for range 7 {
		a.watch()
	}
	if status, body := a.callOperatorAPI(c.operator, http.MethodGet, control.ReportsPath, ""); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "there are 8 such streams already") {
		t.Errorf("a ninth is answered with %d %s", status, body)
	}
	streams["a"].close()
	eventually(t, "there is room", func() bool {
		client := a.httpClient(c.operator)
		response, err := client.Get(a.operatorURL(control.ReportsPath))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// TestAStormOfChangesIsToldToItsEnd: whatever happens in between, the last report is
// what is.
func TestAStormOfChangesIsToldToItsEnd(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	for revision := range int64(200) {
		c.pods["a"].push(c.document(2+revision, "a", "b", "c"))
	}
	var seen int64
	streams["a"].await("it goes by the last revision", func(r control.Report) bool {
		if r.Revision < seen {
			t.Errorf("revision %d comes after %d", r.Revision, seen)
		}
		seen = r.Revision
		return r.Revision == 201
	})
	c.pods["c"].end()
	streams["a"].await("c has crashed, and b leads", func(r control.Report) bool {
		i := slices.IndexFunc(r.Processes, func(row control.Row) bool { return row.Name == "c" })
		return r.Coordinator == "b" && r.Processes[i].Status == "Crashed" && !r.Processes[i].Connected
	})
	c.pods["c"].start()
	streams["a"].await("c is back", func(r control.Report) bool { return r.Coordinator == "c" })
}

// TestTheProbeIsForAllGroups that the operator gives out.
func TestTheProbeIsForAllGroups(t *testing.T) {
	c := newCluster(t)
	well := make(chan bool, 1)
	well <- false
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		is := <-well
		well <- is
		if !is {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer application.Close()
	a := c.add("a")
	probe, err := config.NewProbe(application.URL)
	if err != nil {
		t.Fatal(err)
	}
	probe.Period = 20 * time.Millisecond
	a.settings.Probe = probe
	audit := c.document(1, "a")
	audit.Group.Name = "audit"
	c.publish(c.document(1, "a"), audit)
	s := a.start().watch()
	for range 2 {
		s.await("it doesn't stand", func(r control.Report) bool { return !r.Eligible })
	}
	<-well
	well <- true
	led := map[string]bool{}
	s.await("it leads both groups", func(r control.Report) bool {
		led[r.Group] = r.Coordinator == "a"
		return led["ledger"] && led["audit"]
	})
}
