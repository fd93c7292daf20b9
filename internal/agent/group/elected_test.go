package group

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// testElected runs a test of a group in which c leads, and has fallen silent, with sessions beside the others.
func testElected(t *testing.T, name string, change func(*config.Group), test func(*testing.T, *cluster, *Session,
	*Session),
) {
	t.Helper()
	runInVirtualTime(t, name, func(t *testing.T) {
		c := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, change)
		waitFor(t, c.group("c"), "c leads", isLeading)
		c.awaitFollowers("c", "a", "b")
		a, b := openSession(t, c.group("a")), openSession(t, c.group("b"))
		c.isolate("c")
		test(t, c, a, b)
	})
}

// TestElectedMemberIsToldDuringFormerLease: only the session that would lead, once, and before it leads. One that need
// not wait isn't told, so that it leads no later.
func TestElectedMemberIsToldDuringFormerLease(t *testing.T) {
	none := func(t *testing.T, s *Session) {
		t.Helper()
		must.Succeed(t, s.group.AwaitRoundTrip(testwait.Context(t)))
		expect.Equalf(t, s.watcher.read.next == nil, true, "%s: no further event", s.group.cfg.Self)
	}
	testElected(t, "it leads", nil, func(t *testing.T, c *cluster, a, b *Session) {
		elect, told := nextEvent(t, b, Elect), time.Now()
		if l, err := c.group("b").RenewSession(testwait.Context(t), b.id); err != nil || l.Leading || l.Token != 0 {
			t.Errorf("got %+v, %v, want that the session may not act yet", l, err)
		}
		lead := nextEvent(t, b, Lead)
		waited, within := time.Since(told), time.Duration(elect.WithinMillis)*time.Millisecond
		if elect.Term != lead.Term || waited < testLease/4 || waited > within || within > 2*testLease {
			t.Errorf("got %+v %s before %+v, want the same term, a quarter of the lease at least, and less than it says",
				elect, waited, lead)
		}
		time.Sleep(testLease)
		none(t, a)
		none(t, b)
		c.isolate("b")
		nextEvent(t, b, Lost)
		time.Sleep(testLease)
		none(t, b)
	})
	testElected(t, "another session takes over", nil, func(t *testing.T, c *cluster, _, b *Session) {
		next := openSession(t, c.group("b"))
		nextEvent(t, b, Elect)
		none(t, next)
		b.Close()
		nextEvent(t, next, Elect)
		nextEvent(t, next, Lead)
	})
	for name, fail := range map[string]func(*testing.T, *cluster){
		"it reaches no majority": func(_ *testing.T, c *cluster) { c.isolate("b") },
		"its application dies": func(t *testing.T, c *cluster) {
			must.Succeed(t, c.group("b").ReportProbe(testwait.Context(t), false))
		},
	} {
		testElected(t, name, nil, func(t *testing.T, c *cluster, _, b *Session) {
			elect := nextEvent(t, b, Elect)
			fail(t, c)
			expect.Equalf(t, nextEvent(t, b, Follow).Term, elect.Term, "term after %+v", elect)
		})
	}
	available := func(g *config.Group) { g.Safety.Mode = office.Available }
	ended := func(t *testing.T, c *cluster, _, b *Session) {
		for _, name := range []string{"a", "b"} {
			c.group(name).PeerEnded("c", c.lives["c"])
		}
		if e, err := b.Next(testwait.Context(t)); err != nil || e.Kind != Lead {
			t.Errorf("got event %+v, %v, want that it leads without another event", e, err)
		}
	}
	testElected(t, "the coordinator has ended", nil, ended)
	testElected(t, "no lease", available, ended)
}
