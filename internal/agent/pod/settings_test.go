package pod

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestTimingChangesWithoutElection: agents switch to another lease, other timeouts, another policy and Strict mode, and
// the coordinator continues in its term. A restarted agent waits for the longest lease.
func TestTimingChangesWithoutElection(t *testing.T) {
	names := []string{"a", "b", "c"}
	c, streams := startClusterWith(t, steady, names...)
	term := c.pods["c"].watch().await("c is the coordinator", hasCoordinator("c")).Term
	next := steady(c.document(2, names...))
	suspicionTimeout := int32(5000)
	next.Generation = 2
	next.Group.Safety = control.Safety{Mode: "Strict", LeaseMillis: 9000, LongestLeaseMillis: 9000}
	next.Group.Timing = control.Timing{HeartbeatMillis: 50, SuspicionTimeoutMillis: &suspicionTimeout}
	next.Group.Preemption.Policy = "Never"
	c.pushAll(next)()
	for name, s := range streams {
		r := s.await("it has the new settings", hasRevision(2))
		if r.Coordinator != "c" || r.Term != term || r.Generation != 2 {
			t.Errorf("%s: got %+v, want c in term %d", name, r, term)
		}
		if _, body := c.pods[name].callLocalAPI("/v1/groups/ledger/status"); !strings.Contains(body, `"Strict"`) {
			t.Errorf("%s: got status %s", name, body)
		}
	}
	shorter := next
	shorter.Revision, shorter.Group.Safety = 3, control.Safety{Mode: "Strict", LeaseMillis: 600, LongestLeaseMillis: 600}
	shorter.Group.Timing.SuspicionTimeoutMillis = nil
	a := c.pods["a"]
	a.push(shorter)
	a.end()
	store, err := state.Open(a.settings.StateDir)
	must.Succeed(t, err)
	defer store.Close()
	stored, err := store.Load("ledger")
	must.Succeed(t, err)
	expect.Equalf(t, stored.Lease, 9*time.Second, "stored lease right after it has become shorter")
}

// TestDamagedStateIsReported: the agent doesn't take part until the file is restored or removed,
// because the list that it adopted may be newer than the one that it receives.
func TestDamagedStateIsReported(t *testing.T) {
	c, _ := startCluster(t, "a")
	a := c.pods["a"]
	a.end()
	path := filepath.Join(a.settings.StateDir, "ledger.state")
	whole := must.ReadFile(t, path)
	must.Succeed(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	s := a.start().watch()
	const problem = "ledger.state is damaged: remove the whole state directory"
	document := encode(t, c.document(2, "a"))
	status, body := a.callOperatorAPI(c.operator, http.MethodPut, control.GroupPath("ledger"), document)
	if status == http.StatusNoContent || !strings.Contains(body, problem) {
		t.Errorf("got %d %s for a pushed document, want %q", status, body, problem)
	}
	a.awaitNotReady(problem)
	must.Succeed(t, os.Remove(path))
	a.push(c.document(3, "a"))
	s.await("a is the coordinator", hasCoordinator("a"))
}
