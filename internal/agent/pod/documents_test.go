package pod

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// crew starts pods that take part in revision 1, and waits until the last of them
// leads.
func startCluster(t *testing.T, names ...string) (*cluster, map[string]*stream) {
	t.Helper()
	c := newCluster(t)
	for _, name := range names {
		c.add(name)
	}
	c.publish(c.document(1, names...))
	streams := map[string]*stream{}
	for _, name := range names {
		streams[name] = c.pods[name].start().watch()
	}
	for _, s := range streams {
		s.await("the last one leads", hasCoordinator(names[len(names)-1]))
	}
	return c, streams
}

// adopted waits until somebody goes by a revision.
func hasRevision(revision int64) func(control.Report) bool {
	return func(r control.Report) bool { return r.Revision == revision }
}

// TestTheNewestDocumentCounts, wherever it comes from: a mount that is behind
// changes nothing, and one that is ahead is taken over.
func TestTheNewestDocumentCounts(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	a, s := c.pods["a"], streams["a"]
	a.push(c.document(5, "a", "b", "c"))
	s.await("it goes by revision 5", hasRevision(5))
	stale := c.document(3, "a", "b", "c")
	a.mount(map[string]string{"token": "bank/a", "ledger/group.yaml": string(documentYAML(t, stale))})
	newer := c.document(7, "a", "b", "c")
	newer.Generation = 2
	a.mount(map[string]string{"token": "bank/a", "ledger/group.yaml": string(documentYAML(t, newer))})
	if r := s.await("it goes by another revision", func(r control.Report) bool { return r.Revision != 5 }); r.Revision != 7 || r.Generation != 2 {
		t.Errorf("it goes by %+v", r)
	}
	if status, body := a.callOperatorAPI(a.operator, http.MethodPut, control.GroupPath("ledger"), string(documentYAML(t, stale))); status != http.StatusConflict ||
		!strings.Contains(body, "revision 7, and not 3") {
		t.Errorf("an old document is answered with %d: %s", status, body)
	}
	a.push(newer) // Again, which is no news.
	a.mount(map[string]string{"token": "bank/a"})
	a.push(c.document(8, "a", "b", "c"))
	if r := s.await("it goes by revision 8", hasRevision(8)); r.Coordinator != "c" {
		t.Errorf("without the mounted file, it reports %+v", r)
	}
}

// TestARestartNeedsNobody: certificate, documents and lists are kept.
func TestARestartNeedsNobody(t *testing.T) {
	c, _ := startCluster(t, "a", "b", "c")
	for _, g := range c.pods {
		g.push(c.document(9, "a", "b", "c"))
	}
	c.refuseWith("the operator is away")
	c.publish()
	for _, g := range c.pods {
		g.end()
	}
	for _, g := range c.pods {
		if err := os.RemoveAll(g.settings.MountDir); err != nil {
			t.Fatal(err)
		}
		g.settings.CABundle = nil
		g.start()
	}
	for _, g := range c.pods {
		r := g.watch().await("c leads", hasCoordinator("c"))
		if r.Revision != 9 || r.UID != "uid-1" {
			t.Errorf("%s goes by %+v", g.name, r)
		}
	}
}

// TestAnotherGroupOfTheNameBeginsAnew: with version 1, which the old one is beyond,
// and not before what was promised in the old one has run out.
func TestAnotherGroupOfTheNameBeginsAnew(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	second := c.document(2, "a", "b", "c")
	second.Group.Previous = &control.List{Version: 1, Members: second.Group.Members}
	second.Group.Version = 2
	for _, g := range c.pods {
		g.push(second)
	}
	anew := c.document(3, "a", "b", "c")
	anew.UID = "uid-2"
	begun := time.Now()
	pushed := c.pushAll(anew)
	for name, s := range streams {
		if data := s.awaitLeft(); data != `{"group":"ledger","uid":"uid-1"}` {
			t.Errorf("%s says %s", name, data)
		}
		first := s.await("it takes part in the new group", func(r control.Report) bool { return r.UID == "uid-2" })
		if waited := first.ChangedAt.Sub(begun); waited < 9*500/8*time.Millisecond {
			t.Errorf("%s takes part in the new group after %s", name, waited)
		}
		r := s.await("c leads the new group", hasCoordinator("c"))
		if r.UID != "uid-2" || r.Version != 1 || r.Revision != 3 {
			t.Errorf("%s reports %+v", name, r)
		}
	}
	pushed()
	for name, g := range c.pods {
		lists, err := filepath.Glob(filepath.Join(g.settings.StateDir, "*.list"))
		if err != nil || len(lists) != 1 || filepath.Base(lists[0]) != "ledger@uid-2.list" {
			t.Errorf("%s keeps %v, %v", name, lists, err)
		}
	}
}

// TestTheWaitOutlivesARestart: whoever was in the old group when it was killed may
// have promised something.
func TestTheWaitOutlivesARestart(t *testing.T) {
	c, _ := startCluster(t, "a")
	c.pods["a"].end()
	anew := c.document(2, "a")
	anew.UID, anew.Group.Safety = "uid-2", control.Safety{Mode: "Available", LeaseMillis: 1}
	c.pods["a"].mount(map[string]string{"token": "bank/a", "ledger/group.yaml": string(documentYAML(t, anew))})
	begun := time.Now()
	r := c.pods["a"].start().watch().await("a leads the new group", func(r control.Report) bool { return r.UID == "uid-2" })
	if r.ChangedAt.Sub(begun) < 9*500/8*time.Millisecond {
		t.Errorf("it takes part after %s", r.ChangedAt.Sub(begun))
	}
}

// TestSettingsChangeUnderWay, as far as the schema allows it.
func TestSettingsChangeUnderWay(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	patience := int32(700)
	next := c.document(2, "a", "b", "c")
	next.Generation = 2
	next.Group.Algorithm, next.Group.Safety.Mode, next.Group.Preemption.Policy = "Bully", "Strict", "Never"
	next.Group.Timing.PatienceMillis, next.Group.Application.Session = &patience, "Optional"
	pushed := c.pushAll(next)
	defer pushed()
	for name, s := range streams {
		s.await("somebody leads by the new settings", func(r control.Report) bool { return r.Coordinator != "" && r.Generation == 2 })
		if _, body := c.pods[name].callLocalAPI("/v1/groups/ledger/status"); !strings.Contains(body, `"Bully"`) || !strings.Contains(body, `"Strict"`) {
			t.Errorf("%s runs with %s", name, body)
		}
	}
	a := c.pods["a"]
	for wrong, change := range map[string]func(*control.Group){
		"leaseMillis can't change from 500 to 600":   func(g *control.Group) { g.Safety.LeaseMillis = 600 },
		"mode can't change from Strict to Available": func(g *control.Group) { g.Safety.Mode = "Available" },
	} {
		refused := c.document(3, "a", "b", "c")
		refused.Group.Safety.Mode = "Strict"
		change(&refused.Group)
		status, body := a.callOperatorAPI(a.operator, http.MethodPut, control.GroupPath("ledger"), string(documentYAML(t, refused)))
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, wrong) {
			t.Errorf("the answer is %d %s, and not that %s", status, body, wrong)
		}
		r := streams["a"].await("it says what is wrong", func(r control.Report) bool { return strings.Contains(strings.Join(r.Problems, "\n"), wrong) })
		if r.Revision != 2 {
			t.Errorf("it goes by %+v", r)
		}
	}
	a.push(next)
	good := c.document(4, "a", "b", "c")
	good.Group = next.Group
	a.push(good)
	streams["a"].await("all is well again", func(r control.Report) bool { return r.Revision == 4 && len(r.Problems) == 0 })
}

// TestWhoIsTakenOffTheListAdoptsThat, and leaves when it is told to; also if it was
// restarted meanwhile.
func TestWhoIsTakenOffTheListAdoptsThat(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c", "d")
	next := c.document(2, "a", "b", "c")
	next.Group.Version, next.Group.Floor = 2, 1
	next.Group.Previous = &control.List{Version: 1, Members: c.members("a", "b", "c", "d")}
	for _, g := range c.pods {
		g.push(next)
	}
	for name, s := range streams {
		r := s.await("c leads by version 2", func(r control.Report) bool {
			return r.Version == 2 && (r.Coordinator == "c" || name == "d") // Nobody needs to tell d, when the list has settled.
		})
		if r.Eligible != (name != "d") || len(r.Processes) != 3 {
			t.Errorf("%s reports %+v", name, r)
		}
	}
	d := c.pods["d"]
	d.end()
	c.publish()
	s := d.start().watch()
	if r := s.await("it goes by revision 2", hasRevision(2)); r.Version != 2 || r.Eligible {
		t.Errorf("after a restart, d reports %+v", r)
	}
	leave := control.GroupPath("ledger") + "?uid="
	if status, _ := d.callOperatorAPI(d.operator, http.MethodDelete, leave+"another", ""); status != http.StatusNoContent {
		t.Errorf("another group is left with %d", status)
	}
	if status, body := d.callLocalAPI("/v1/groups"); !strings.Contains(body, "ledger") {
		t.Errorf("it says %d %s", status, body)
	}
	if status, body := d.callOperatorAPI(d.operator, http.MethodDelete, leave+"uid-1", ""); status != http.StatusNoContent {
		t.Errorf("it is left with %d %s", status, body)
	}
	s.awaitLeft()
	if status, body := d.callLocalAPI("/v1/groups"); body != `{"groups":[]}` {
		t.Errorf("it says %d %s", status, body)
	}
	files, err := filepath.Glob(filepath.Join(d.settings.StateDir, "*.list"))
	if err != nil || len(files) > 0 {
		t.Errorf("it keeps %v, %v", files, err)
	}

	// What is mounted is behind, and doesn't bring it back; the next list does.
	d.end()
	d.mount(map[string]string{"token": "bank/d", "ledger/group.yaml": string(documentYAML(t, next))})
	d.start()
	back := c.document(3, "a", "b", "c", "d")
	back.Group.Version, back.Group.Floor, back.Group.Previous = 3, 2, &control.List{Version: 2, Members: c.members("a", "b", "c")}
	s = d.watch()
	if e := s.next(); e.kind != control.EventCurrent {
		t.Errorf("it takes part: %+v", e)
	}
	for _, g := range c.pods {
		g.push(back)
	}
	s.await("d leads", hasCoordinator("d"))
}

// TestStrangersTakeNoPart: a document without the pod makes it leave, and isn't
// reported.
func TestStrangersTakeNoPart(t *testing.T) {
	c, streams := startCluster(t, "a", "b", "c")
	next := c.document(2, "a", "b")
	next.Group.Version, next.Group.Floor = 3, 1
	next.Group.Previous = &control.List{Version: 2, Members: c.members("a", "b")}
	c.pods["c"].push(next)
	streams["c"].awaitLeft()
	if status, body := c.pods["c"].callLocalAPI("/v1/groups/ledger/leader"); status != http.StatusServiceUnavailable {
		t.Errorf("it says %d %s", status, body)
	}
	for _, name := range []string{"a", "b"} {
		c.pods[name].push(next)
		streams[name].await("b leads", hasCoordinator("b"))
	}
}

// TestAMemberThatIsNowhereYet is waited for, and found as soon as it is somewhere.
func TestAMemberThatIsNowhereYet(t *testing.T) {
	c := newCluster(t)
	a, b := c.add("a"), c.add("b")
	first := c.document(1, "a", "b", "z")
	for i := range first.Group.Members {
		first.Group.Members[i].Address = ""
	}
	c.publish(first)
	for _, g := range []*testPod{a, b} {
		g.start().watch().await("it goes by revision 1", hasRevision(1))
	}
	// One is told where the others are; the other one isn't, and is called.
	a.push(c.document(2, "a", "b", "z"))
	for _, g := range []*testPod{a, b} {
		g.watch().await("b leads", hasCoordinator("b"))
	}
	z := c.add("z")
	c.publish(c.document(3, "a", "b", "z"))
	s := z.start().watch()
	a.push(c.document(3, "a", "b", "z"))
	b.push(c.document(3, "a", "b", "z"))
	s.await("z leads", hasCoordinator("z"))
}

// TestWhatIsDamagedIsToldAndDoneWithout: of documents, others know more.
func TestWhatIsDamagedIsToldAndDoneWithout(t *testing.T) {
	c, _ := startCluster(t, "a")
	a := c.pods["a"]
	a.end()
	if err := os.WriteFile(filepath.Join(a.settings.StateDir, "ledger.document"), []byte("conclave document 1, sha256 00\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := a.start().watch()
	a.push(c.document(1, "a"))
	s.await("a leads", hasCoordinator("a"))
	if n := a.log.count("ledger.document is damaged"); n != 1 {
		t.Errorf("the log tells of the damage %d times", n)
	}
}

// TestAListThatHasSettledNeedsNobodyOfTheOneBefore: all of them have departed from
// it, as far as agents are told. They may begin with it, or join again under it.
func TestAListThatHasSettledNeedsNobodyOfTheOneBefore(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"a", "b", "c"} {
		c.add(name)
	}
	d := c.document(1, "a", "b", "c")
	d.Group.Version, d.Group.Floor, d.Group.Departed = 2, 1, []string{"x", "y", "z"}
	d.Group.Previous = &control.List{Version: 1, Members: c.members("x", "y", "z")}
	c.publish(d)
	streams := map[string]*stream{}
	for name, g := range c.pods {
		streams[name] = g.start().watch()
	}
	for _, s := range streams {
		s.await("c leads", hasCoordinator("c"))
	}
	d.Revision, d.Generation, d.Group.Algorithm = 2, 2, "RingSkip"
	pushed := c.pushAll(d)
	defer pushed()
	for _, s := range streams {
		s.await("c leads again", func(r control.Report) bool { return r.Generation == 2 && r.Coordinator == "c" })
	}
}

// TestARevisionFarAheadIsRefused, wherever it comes from: it would be the last one.
func TestARevisionFarAheadIsRefused(t *testing.T) {
	c := newCluster(t)
	a := c.add("a")
	spoilt := c.document(time.Now().Add(25*time.Hour).UnixMilli(), "a", "x", "y")
	c.publish(spoilt)
	a.mount(map[string]string{"token": "bank/a", "ledger/group.yaml": string(documentYAML(t, spoilt))})
	if err := os.MkdirAll(a.settings.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	keeper := documentStore{a.settings.StateDir}
	if err := keeper.save("ledger", groupRecord{UID: spoilt.UID, Revision: spoilt.Revision, Lease: time.Second, Document: string(documentYAML(t, spoilt))}); err != nil {
		t.Fatal(err)
	}
	s := a.start().watch()
	const line = "is more than a day ahead of this machine's clock"
	status, body := a.callOperatorAPI(c.operator, http.MethodPut, control.GroupPath("ledger"), string(documentYAML(t, spoilt)))
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, line) || strings.Contains(body, "\n") {
		t.Errorf("the operator is answered with %d: %s", status, body)
	}
	eventually(t, "what is kept, mounted, and given with the certificate is refused, each in a line", func() bool { return a.log.count(line) == 3 })
	a.push(c.document(time.Now().Add(23*time.Hour).UnixMilli(), "a"))
	s.await("it takes what comes after that", hasCoordinator("a"))
}
