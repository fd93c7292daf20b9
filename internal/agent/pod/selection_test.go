package pod

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// addSelected adds pods whose groups are those that select them. None does yet.
func (c *cluster) addSelected(names ...string) {
	c.t.Helper()
	for _, name := range names {
		pod := c.add(name)
		pod.settings.Groups, pod.settings.GroupsFile = nil, filepath.Join(pod.settings.MountDir, "selected-by")
	}
	c.selectBy()
}

// groups returns the groups that the agent can join, once it has reported them.
func (s *stream) groups() []string {
	s.t.Helper()
	for {
		if e := s.next(); e.kind == control.EventCurrent {
			var agent control.Agent
			must.Succeed(s.t, json.Unmarshal([]byte(e.data), &agent))
			return agent.Groups
		}
	}
}

// awaitEnd waits until the agent has ended the stream.
func (s *stream) awaitEnd() {
	s.t.Helper()
	deadline := time.After(testwait.Limit)
	for {
		select {
		case _, ok := <-s.events:
			if !ok {
				return
			}
		case <-deadline:
			s.t.Fatalf("timed out waiting until %s ends the stream", s.name)
		}
	}
}

// TestRunningAgentJoinsGroups: an agent starts without a group, joins the first one and then
// another one, and is in both after a restart.
func TestRunningAgentJoinsGroups(t *testing.T) {
	c := newCluster(t)
	c.addSelected("a", "b")
	a := c.pods["a"].start()
	c.pods["b"].start()
	testwait.Until(t, "the agent explains what it waits for", func() bool {
		status, body := a.callLocalAPI("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "no group selects the pod yet")
	})

	// An application that starts before its group exists must wait for it, and not fail.
	for path, want := range map[string]int{
		"/v1/groups/audit/session": http.StatusServiceUnavailable, "/v1/groups/Audit/session": http.StatusNotFound,
	} {
		wantStatus(t, path, want)(a.callLocalAPI(path))
	}

	c.selectBy("audit")
	first := a.watch()
	if got := first.groups(); !slices.Equal(got, []string{"audit"}) {
		t.Fatalf("got groups %q, want audit", got)
	}
	if status, body := a.callOperatorAPI(a.operator, http.MethodPut, control.GroupPath("ledger"),
		encode(t, c.document(1, "a", "b"))); status != http.StatusNotFound {
		t.Errorf("got %d %s for a document of a group that doesn't select the pod, want 404", status, body)
	}

	c.selectBy("audit", "ledger")
	first.awaitEnd()
	streams := map[string]*stream{"a": a.watch(), "b": nil}
	if got := streams["a"].groups(); !slices.Equal(got, []string{"audit", "ledger"}) {
		t.Fatalf("got groups %q, want audit and ledger", got)
	}
	testwait.Until(t, "b can join ledger", func() bool {
		streams["b"] = c.pods["b"].watch()
		return slices.Contains(streams["b"].groups(), "ledger")
	})
	pushed := c.pushAll(c.document(1, "a", "b"))
	defer pushed()
	for _, s := range streams {
		s.await("b is the coordinator", hasCoordinator("b"))
	}

	enrolled := c.enrollments("a")
	a.end()
	a.start()
	again := a.watch()
	again.await("it is in the group again", hasCoordinator("b"))
	expect.Equalf(t, c.enrollments("a"), enrolled,
		"enrollments after a restart (the stored certificate names the groups)")
}

// TestAgentIgnoresInvalidListOfGroups, and continues with the previous one.
func TestAgentIgnoresInvalidListOfGroups(t *testing.T) {
	c := newCluster(t)
	c.addSelected("a")
	a := c.pods["a"]
	c.selectBy("ledger")
	c.publish(c.document(1, "a"))
	s := a.start().watch()
	s.await("a is the coordinator", hasCoordinator("a"))
	a.mount(map[string]string{"token": "bank/a", "selected-by": "ledger,Not a name"})
	testwait.Until(t, "the agent has refused the list",
		func() bool { return a.log.Count("cannot use the groups that select the pod") == 1 })
	wantStatus(t, "/readyz", http.StatusOK)(a.callLocalAPI("/readyz"))
}

// TestGroupThatNoLongerSelectsThePod: the agent doesn't wait for its document.
func TestGroupThatNoLongerSelectsThePod(t *testing.T) {
	c := newCluster(t)
	c.addSelected("a")
	a := c.pods["a"]
	c.selectBy("ledger", "audit")
	c.publish(c.document(1, "a"))
	a.start()
	ready := func() (int, string) { return a.callLocalAPI("/readyz") }
	testwait.Until(t, "the agent waits for the document", func() bool {
		status, body := ready()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "group audit: waiting for its document")
	})
	c.selectBy("ledger")
	testwait.Until(t, "the agent is ready", func() bool {
		status, _ := ready()
		return status == http.StatusOK
	})
}
