package group

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

const longLease = 10 * testLease

// TestSettingsChangeWithoutElection: while the members have different settings, they
// accept each other, and the shorter lease counts. The coordinator continues in its term.
func TestSettingsChangeWithoutElection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
		holder := c.group("c")
		first := waitFor(t, holder, "c leads", isLeading)
		change := func(name string) {
			t.Helper()
			g := c.group(name)
			next := g.cfg.Group
			next.Safety.Lease, next.Timing.SuspicionTimeout, next.Timing.Heartbeat = longLease,
				2*time.Second, 30*time.Millisecond
			next.Preemption.Policy, next.Timing.DrainTimeout, next.Timing.ReplyTimeout = office.NeverPreempt,
				7*time.Second, 40*time.Millisecond
			must.Succeed(t, g.Use(testwait.Context(t), next))
			expect.Equalf(t, g.DrainTimeout(), 7*time.Second, "%s: drain timeout", name)
		}
		change("c")
		holder.awaitRenewal(t, func(rest time.Duration) bool { return rest > 0 })
		expect.AtMostf(t, holder.tenureRemaining(t), testLease, "time of a tenure by grants of members with a shorter lease")
		change("a")
		holder.awaitRenewal(t, func(rest time.Duration) bool { return rest > testLease }) // c and a are a majority
		change("b")
		for name, g := range c.groups {
			expect.Lenf(t, ignoredBy(g), 0, "%s: problems", name)
			if l := g.Leader(); l.Coordinator != "c" || l.Term != first.Term {
				t.Errorf("%s: got %+v, want c in term %d", name, l, first.Term)
			}
		}
	})
}

// TestSessionsLearnTheDrainTimeout: otherwise, an application that needs a longer one would
// end its session before it has stopped, and the successor would begin.
func TestSessionsLearnTheDrainTimeout(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, map[string]int{"a": 10}, nil)
		g := c.group("a")
		waitFor(t, g, "a leads", isLeading)
		s := openSession(t, g)
		for _, drain := range []time.Duration{7 * time.Second, 7 * time.Second, 8 * time.Second} {
			next := g.cfg.Group
			next.Timing.DrainTimeout = drain
			must.Succeed(t, g.Use(testwait.Context(t), next))
		}
		nextEvent(t, s, Lead)
		nextEvent(t, s, SettingsChanged)
		nextEvent(t, s, SettingsChanged)
		expect.Equalf(t, s.watcher.read.next == nil, true, "one event for each change")
	})
}

// tenureRemaining returns for how long the grants of the coordinator suffice.
func (g *Group) tenureRemaining(t *testing.T) (rest time.Duration) {
	t.Helper()
	must.Succeed(t,
		g.call(testwait.Context(t), func() { rest = time.Duration(g.machine.Status().Until - g.cfg.Clock.Now()) }))
	return rest
}

// awaitRenewal waits until the coordinator has renewed its grants twice, and the time for
// which they suffice is as wanted.
func (g *Group) awaitRenewal(t *testing.T, wanted func(rest time.Duration) bool) {
	t.Helper()
	ctx := testwait.Context(t)
	last, renewals := election.Tick(0), 0
	for renewals <= 2 || !wanted(g.tenureRemaining(t)) {
		must.Succeed(t, g.call(ctx, func() {
			if until := g.machine.Status().Until; until > last {
				last, renewals = until, renewals+1
			}
		}))
		time.Sleep(time.Millisecond)
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newLoneMember(t, "a",
			func(g *config.Group) { g.List.Members = []memberlist.Member{member("a", 10), member("b", 20)} })
		next := g.cfg.Group
		next.Safety.Lease, next.Timing.DrainTimeout = next.Timing.Heartbeat, time.Hour
		expect.ErrorContainsf(t, g.Use(testwait.Context(t), next), "lease", "an error about the lease")
		expect.Equalf(t, g.DrainTimeout() == time.Hour, false, "the new drain timeout is in force")
	})
}

func TestReplyTimeoutFollowsRoundTrip(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20}, func(g *config.Group) { g.Timing.Measured = true })
		a := cluster.group("a")
		for _, c := range [][2]int{{1, 10}, {2, 14}, {100, 210}, {90, 210}, {5000, 1000}, {0, 10}} { // ms
			cluster.mu.Lock()
			cluster.roundTrip = time.Duration(c[0]) * time.Millisecond
			cluster.mu.Unlock()
			time.Sleep(measureInterval + testLease)
			var got, sent time.Duration
			must.Succeed(t, a.call(testwait.Context(t), func() {
				got, a.replyInForce, a.measureDue = a.replyInForce, time.Hour, a.record.Now
				a.adjustTiming()
				sent, a.replyInForce = time.Duration(a.record.Input.Timing.Reply), got
			}))
			expect.Equalf(t, got, time.Duration(c[1])*time.Millisecond, "timeout with a round trip of %d ms", c[0])
			expect.Equalf(t, sent, a.replyTimeout(), "timeout of the election")
		}
	})
}

// TestRecoveryWaitsForConnections: for those of all members, but no longer than the reply timeout after the first one.
func TestRecoveryWaitsForConnections(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster, settings := emptyCluster(t), testSettings()
		settings.List.Members = []memberlist.Member{member("a", 10), member("b", 20), member("c", 30)}
		cluster.isolate("b")
		cluster.isolate("c")
		cluster.join("a", 1, settings)
		a := cluster.group("a")
		expectRecovery := func(want bool, what string) {
			t.Helper()
			a.Refresh()
			must.Succeed(t, a.AwaitRoundTrip(testwait.Context(t)))
			check := func() { expect.Equalf(t, a.recovery.begun, want, "recovers %s", what) }
			must.Succeed(t, a.call(testwait.Context(t), check))
		}
		time.Sleep(2 * settings.Timing.ReplyTimeout)
		expectRecovery(false, "without a connection")
		cluster.mu.Lock()
		delete(cluster.cut, "b")
		cluster.mu.Unlock()
		expectRecovery(false, "with a connection")
		time.Sleep(2 * settings.Timing.ReplyTimeout)
		expectRecovery(true, "after the reply timeout")
	})
}
