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
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// breakDisk makes every write of a file in the state directory fail until repair is called.
func (g *testPod) breakDisk(name string) (repair func()) {
	g.t.Helper()
	inTheWay := filepath.Join(g.settings.StateDir, name+state.TempSuffix)
	must.Succeed(g.t, os.MkdirAll(filepath.Join(inTheWay, "full"), 0o700))
	return func() {
		g.t.Helper()
		must.Succeed(g.t, os.RemoveAll(inTheWay))
	}
}

// TestGroupLeftAfterDiskErrorIsNotJoinedAgain, neither by the retry of the document that couldn't
// be stored, nor because the operator's command to join arrives late.
func TestGroupLeftAfterDiskErrorIsNotJoinedAgain(t *testing.T) {
	t.Parallel()
	c, streams := startCluster(t, "a", "b")
	b := c.pods["b"]
	next := c.document(2, "a", "b")
	repair := b.breakDisk("ledger.state")
	go b.offer(next)
	testwait.Until(t, "b can't store revision 2", func() bool { return b.log.Count("cannot store the state of group ledger") > 0 })
	leave := control.GroupPath("ledger") + "?uid=uid-1&revision=2"
	if status, body := b.callOperatorAPI(b.operator, http.MethodDelete, leave, ""); status == http.StatusNoContent {
		t.Errorf("got %d %s, want an error of the disk", status, body)
	}
	repair()
	if status, body := b.callOperatorAPI(b.operator, http.MethodDelete, leave, ""); status != http.StatusNoContent {
		t.Errorf("got %d %s, want 204", status, body)
	}
	streams["b"].awaitLeft()
	b.offer(next)
	for until := time.Now().Add(2 * diskRetryDelay); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if _, body := b.callLocalAPI("/v1/groups"); body != `{"groups":[]}` {
			t.Fatalf("got %s, want no groups", body)
		}
	}
	b.push(c.document(3, "a", "b"))
	streams["b"].await("it has revision 3", hasRevision(3))
}

// TestDamagedStateIsReported: the agent doesn't take part until the file is restored or removed,
// because the list that it adopted may be newer than the one that it receives.
func TestDamagedStateIsReported(t *testing.T) {
	t.Parallel()
	c, _ := startCluster(t, "a")
	a := c.pods["a"]
	a.end()
	path := filepath.Join(a.settings.StateDir, "ledger.state")
	whole := must.ReadFile(t, path)
	must.Succeed(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	s := a.start().watch()
	const problem = "ledger.state is damaged: restore it"
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
