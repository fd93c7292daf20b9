package pod

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// startCluster starts pods with revision 1, and waits until the last one is the coordinator.
func startCluster(t *testing.T, names ...string) (*cluster, map[string]*stream) {
	t.Helper()
	return startClusterWith(t, func(d control.Document) control.Document { return d }, names...)
}

// startClusterWith is like startCluster, after applying change to the document.
func startClusterWith(t *testing.T, change func(control.Document) control.Document,
	names ...string,
) (*cluster, map[string]*stream) {
	t.Helper()
	c := newCluster(t)
	for _, name := range names {
		c.add(name)
	}
	c.publish(change(c.document(1, names...)))
	streams := map[string]*stream{}
	for _, name := range names {
		streams[name] = c.pods[name].start().watch()
	}
	for _, s := range streams {
		s.await("the last one is the coordinator", hasCoordinator(names[len(names)-1]))
	}
	return c, streams
}

// hasRevision matches reports with a revision.
func hasRevision(revision int64) func(control.Report) bool {
	return func(r control.Report) bool { return r.Revision == revision }
}

// TestRestartNeedsNoOperator: certificate, documents and lists are stored.
func TestRestartNeedsNoOperator(t *testing.T) {
	c, _ := startCluster(t, "a", "b", "c")
	for _, g := range c.pods {
		g.push(c.document(9, "a", "b", "c"))
	}
	c.refuseWith("the operator is absent")
	c.publish()
	for _, g := range c.pods {
		g.end()
	}
	for _, g := range c.pods {
		must.Succeed(t, os.RemoveAll(g.settings.MountDir))
		g.start()
	}
	for _, g := range c.pods {
		r := g.watch().await("c is the coordinator", hasCoordinator("c"))
		if r.Revision != 9 || r.UID != "uid-1" {
			t.Errorf("%s: got %+v, want revision 9", g.name, r)
		}
	}
}

// TestGroupWithNewUIDStartsAfterOldGrantsExpire: it starts with version 1, although the
// previous group of the name had version 2.
func TestGroupWithNewUIDStartsAfterOldGrantsExpire(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	second := c.document(2, "a", "b", "c")
	second.Group.Previous = &memberlist.List{Version: 1, Members: second.Group.Members}
	second.Group.Version = 2
	for _, g := range c.pods {
		g.push(second)
	}
	replacement := c.document(3, "a", "b", "c")
	replacement.UID = "uid-2"
	begun := time.Now()
	pushed := c.pushAll(replacement)
	for name, s := range streams {
		expect.Equalf(t, s.awaitLeft(), `{"group":"ledger","uid":"uid-1"}`, "%s", name)
		first := s.await("it takes part in the new group", func(r control.Report) bool { return r.UID == "uid-2" })
		expect.AtLeastf(t, first.ChangedAt.Sub(begun), 9*500/8*time.Millisecond,
			"%s: time until it joined the new group", name)
		r := s.await("c is the coordinator of the new group", hasCoordinator("c"))
		if r.UID != "uid-2" || r.Version != 1 || r.Revision != 3 {
			t.Errorf("%s: got %+v, want version 1 and revision 3", name, r)
		}
	}
	pushed()
	for name, g := range c.pods {
		g.end()
		if stored := g.loadState(); stored.UID != "uid-2" || stored.List.Version != 1 || stored.Revision != 3 {
			t.Errorf("%s: got %+v stored, want the new group", name, stored)
		}
	}
}

// TestRemovedMemberAdoptsListAndLeaves: it leaves when the operator requests it, also after a restart.
func TestRemovedMemberAdoptsListAndLeaves(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c", "d")
	next := c.document(2, "a", "b", "c")
	next.Group.Version = 2
	next.Group.Previous = &memberlist.List{Version: 1, Members: c.members("a", "b", "c", "d")}
	for _, g := range c.pods {
		g.push(next)
	}
	for name, s := range streams {
		r := s.await("c is the coordinator under version 2", func(r control.Report) bool {
			// When the list has settled, d need not receive the result.
			return r.Version == 2 && (r.Coordinator == "c" || name == "d")
		})
		_, status := c.pods[name].callLocalAPI("/v1/groups/ledger/status")
		if r.Eligible != (name != "d") || strings.Count(status, `"connected":`) != 3 {
			t.Errorf("%s: got %+v and status %s, want three processes", name, r, status)
		}
	}
	d := c.pods["d"]
	d.end()
	c.publish()
	s := d.start().watch()
	if r := s.await("it has revision 2", hasRevision(2)); r.Version != 2 || r.Eligible {
		t.Errorf("after a restart: got %+v", r)
	}
	leave := control.GroupPath("ledger") + "?revision=2&uid="
	late := control.GroupPath("ledger") + "?revision=1&uid=uid-1"
	wantStatus(t, "a late command", http.StatusNoContent)(d.callOperatorAPI(d.operator, http.MethodDelete, late, ""))
	wantStatus(t, "its UID", http.StatusNoContent)(d.callOperatorAPI(d.operator, http.MethodDelete, leave+"another", ""))
	if status, body := d.callLocalAPI("/v1/groups"); !strings.Contains(body, "ledger") {
		t.Errorf("got %d %s, want group ledger", status, body)
	}
	if status, body := d.callOperatorAPI(d.operator, http.MethodDelete, leave+"uid-1",
		""); status != http.StatusNoContent {
		t.Errorf("got %d %s, want 204", status, body)
	}
	s.awaitLeft()
	if status, body := d.callLocalAPI("/v1/groups"); body != `{"groups":[]}` {
		t.Errorf("got %d %s, want no groups", status, body)
	}

	// The document is outdated now, so d doesn't join again. It does with the next list.
	d.end()
	if stored := d.loadState(); stored.List != nil || stored.Document != "" || stored.Revision != 2 {
		t.Errorf("got %+v stored, want no list and no document", stored)
	}
	d.start()
	back := c.document(3, "a", "b", "c", "d")
	back.Group.Version, back.Group.Previous = 3,
		&memberlist.List{Version: 2, Members: c.members("a", "b", "c")}
	s = d.watch()
	if e := s.next(); e.kind != control.EventCurrent {
		t.Errorf("got %+v, want no group", e)
	}
	status, body := d.callOperatorAPI(d.operator, http.MethodPut, control.GroupPath("ledger"), encode(t, next))
	if status != http.StatusConflict || !strings.Contains(body, `revision must be at least 3, got 2","revision":3`) {
		t.Errorf("got %d %s for the document that the agent has left, want 409", status, body)
	}
	for _, g := range c.pods {
		g.push(back)
	}
	s.await("d is the coordinator", hasCoordinator("d"))
}

// TestMemberWithoutAddressConnectsLater, as soon as its address is published.
func TestMemberWithoutAddressConnectsLater(t *testing.T) {
	c := newCluster(t)
	a, b := c.add("a"), c.add("b")
	first := c.document(1, "a", "b", "z")
	for i := range first.Group.Members {
		first.Group.Members[i].Address = ""
	}
	c.publish(first)
	for _, g := range []*testPod{a, b} {
		g.start().watch().await("it has revision 1", hasRevision(1))
	}
	// a receives the addresses and connects to b, which has none.
	a.push(c.document(2, "a", "b", "z"))
	for _, g := range []*testPod{a, b} {
		g.watch().await("b is the coordinator", hasCoordinator("b"))
	}
	z := c.add("z")
	c.publish(c.document(3, "a", "b", "z"))
	s := z.start().watch()
	a.push(c.document(3, "a", "b", "z"))
	b.push(c.document(3, "a", "b", "z"))
	s.await("z is the coordinator", hasCoordinator("z"))
}

// TestRevisionFarAheadIsRefused, whether it is stored or pushed: the agent would ignore all later documents.
func TestRevisionFarAheadIsRefused(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	future := c.document(time.Now().Add(25*time.Hour).UnixMilli(), "a", "x", "y")
	a.saveState(state.Record{UID: future.UID, Revision: future.Revision, Lease: time.Second, Document: encode(t, future)})
	s := a.start().watch()
	const line = "is more than a day ahead of this machine's clock"
	status, body := a.callOperatorAPI(c.operator, http.MethodPut, control.GroupPath("ledger"), encode(t, future))
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, line) || strings.Contains(body, "\n") {
		t.Errorf("got %d for the pushed document: %s", status, body)
	}
	testwait.Until(t, "the stored document is refused, with one log line", func() bool { return a.log.Count(line) == 1 })
	a.push(c.document(time.Now().Add(23*time.Hour).UnixMilli(), "a"))
	s.await("a is the coordinator with a later document", hasCoordinator("a"))
}
