package group

import (
	"errors"
	"sync"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// ears hears the reports of one group.
type ears struct {
	mu    sync.Mutex
	heard []control.Report
	more  chan struct{}
}

func (e *ears) tell(r control.Report) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, r)
	select {
	case e.more <- struct{}{}:
	default:
	}
}

func (e *ears) last() control.Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.heard) == 0 {
		return control.Report{}
	}
	return e.heard[len(e.heard)-1]
}

func (e *ears) await(t *testing.T, what string, wanted func(control.Report) bool) {
	t.Helper()
	ctx := soon(t)
	for !wanted(e.last()) {
		select {
		case <-e.more:
		case <-ctx.Done():
			t.Fatalf("it is never reported that %s, but %+v", what, e.last())
		}
	}
}

// listen founds a group whose member a is heard.
func listen(t *testing.T, withheld bool, priorities map[string]int) (*town, *ears) {
	t.Helper()
	town := found(t, priorities, nil)
	of := town.of("a").cfg
	town.of("a").Leave(soon(t))
	e := &ears{more: make(chan struct{}, 1)}
	of.OnReport, of.Excluded = e.tell, withheld
	g, err := New(of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		town.isolate("a")
		g.Leave(t.Context())
	})
	town.mu.Lock()
	defer town.mu.Unlock()
	town.groups["a"] = g
	return town, e
}

// TestReportsSayWhatIsNew, and are silent while nothing is.
func TestReportsSayWhatIsNew(t *testing.T) {
	town, e := listen(t, false, map[string]int{"a": 10, "b": 20, "c": 30})
	e.await(t, "c leads", func(r control.Report) bool { return r.Coordinator == "c" && r.Eligible && !r.ElectedAt.IsZero() })
	before := e.last()
	town.isolate("c")
	e.await(t, "c has crashed, and b leads", func(r control.Report) bool {
		return r.Coordinator == "b" && r.Processes[0].Name == "c" && r.Processes[0].Status == "Crashed" && r.ElectedAt.After(before.ElectedAt)
	})
	a := town.of("a")
	e.mu.Lock()
	said := len(e.heard)
	e.mu.Unlock()
	for range 10 {
		a.Refresh() // There is nothing new.
	}
	if _, err := a.Status(soon(t)); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	for i, r := range e.heard[said:] {
		t.Errorf("report %d says nothing new: %+v", i, r)
	}
	e.mu.Unlock()
	list := config.List{Version: 2, Members: a.cfg.Group.List.Members, Previous: &a.cfg.Group.List}
	if err := a.Adopt(soon(t), list, config.Provenance{UID: "u", Generation: 2, Revision: 3}); err != nil {
		t.Fatal(err)
	}
	e.await(t, "it has another list", func(r control.Report) bool {
		return r.Version == 2 && r.UID == "u" && r.Generation == 2 && r.Revision == 3 && r.Digest != before.Digest
	})
}

// TestWhoIsWithheldDoesNotLead, not even where nobody else does.
func TestWhoIsWithheldDoesNotLead(t *testing.T) {
	town, e := listen(t, true, map[string]int{"a": 10})
	if r := e.last(); r.Eligible || !r.Excluded {
		t.Errorf("it reports %+v", r)
	}
	a := town.of("a")
	if err := a.Readmit(soon(t)); err != nil {
		t.Fatal(err)
	}
	e.await(t, "a leads", func(r control.Report) bool { return r.Coordinator == "a" && !r.Excluded })
	if err := a.Exclude(soon(t)); !errors.Is(err, ErrNoSuccessor) {
		t.Errorf("the only one is withheld: %v, %+v", err, e.last())
	}
	if withheld, err := a.Excluded(soon(t)); err != nil || withheld {
		t.Errorf("the only one is withheld although that was refused: %t, %v", withheld, err)
	}
}

// TestWithholdingWaitsForTheApplication, as every hand-over does.
func TestWithholdingWaitsForTheApplication(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
	c := town.of("c")
	s := open(t, c)
	lead := next(t, s, Lead)
	for _, name := range []string{"a", "b"} {
		await(t, town.of(name), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
	}
	withheld := make(chan error, 1)
	ctx := soon(t)
	go func() { withheld <- insist(ctx, c.Exclude) }()
	next(t, s, Stop)
	if l := town.of("a").Leader(); l.Coordinator != "c" {
		t.Errorf("while its application stops, a says %+v", l)
	}
	if err := c.ConfirmStopped(soon(t), s.ID(), lead.Term); err != nil {
		t.Fatal(err)
	}
	if err := <-withheld; err != nil {
		t.Error(err)
	}
	await(t, town.of("b"), "b leads", leads)
}

// TestWhoIsNotOnTheListTakesPartUntilItCounts: it may have been restarted since the
// list before, whose majority has to adopt this one.
func TestWhoIsNotOnTheListTakesPartUntilItCounts(t *testing.T) {
	old := config.List{Version: 1, Members: []config.Member{member("a", 10), member("b", 20), member("c", 30)}}
	list := config.List{Version: 2, Members: []config.Member{member("d", 40), member("e", 50)}, Previous: &old, Floor: 1}
	town := found(t, map[string]int{"d": 40, "e": 50}, func(g *config.Group) { g.List = list })
	for i, name := range []string{"a", "b"} {
		if l := town.of("e").Leader(); l.Leading {
			t.Errorf("e leads without a majority of the list before: %+v", l)
		}
		of := town.of("d").cfg.Group
		town.join(name, uint32(10+i), of)
	}
	await(t, town.of("e"), "e leads", leads)
	if s, err := town.of("a").Status(soon(t)); err != nil || s.Leading || s.Version != 2 {
		t.Errorf("a says %+v, %v", s, err)
	}
}
