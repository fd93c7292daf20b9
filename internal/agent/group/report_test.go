package group

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// reportLog stores the reports of one group.
type reportLog struct {
	mu      sync.Mutex
	reports []control.Report
	wake    chan struct{}
}

func (l *reportLog) add(r control.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *reportLog) last() control.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reports) == 0 {
		return control.Report{}
	}
	return l.reports[len(l.reports)-1]
}

func (l *reportLog) waitFor(t *testing.T, what string, wanted func(control.Report) bool) {
	t.Helper()
	ctx := testwait.Context(t)
	for !wanted(l.last()) {
		select {
		case <-l.wake:
		case <-ctx.Done():
			t.Fatalf("timed out waiting until %s: got %+v, last ending %s", what, l.last(), formatEnding(l.last().Ended))
		}
	}
}

// waitForAny waits for a report that later ones may have followed.
func (l *reportLog) waitForAny(t *testing.T, what string, wanted func(control.Report) bool) {
	t.Helper()
	l.waitFor(t, what, func(control.Report) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(l.reports, wanted)
	})
}

// newReportingCluster starts a cluster, and stores the reports of its member a.
func newReportingCluster(t *testing.T, excluded bool, priorities map[string]int) (*cluster, *reportLog) {
	t.Helper()
	cluster := newCluster(t, priorities, nil)
	cfg := cluster.group("a").cfg
	cluster.group("a").Leave(testwait.Context(t), control.EndStopped)
	reports := &reportLog{wake: make(chan struct{}, 1)}
	cfg.OnReport, cfg.Excluded = reports.add, excluded
	g, err := New(cfg)
	must.Succeed(t, err)
	t.Cleanup(func() {
		cluster.isolate("a")
		g.Leave(t.Context(), control.EndStopped)
	})
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	cluster.groups["a"] = g
	return cluster, reports
}

// TestReportsOnlyChanges: Refresh doesn't cause a report if nothing has changed.
func TestReportsOnlyChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster, reports := newReportingCluster(t, false, map[string]int{"a": 10, "b": 20, "c": 30})
		reports.waitFor(t, "c leads",
			func(r control.Report) bool { return r.Coordinator == "c" && r.Eligible && !r.ElectedAt.IsZero() })
		before := reports.last()
		cluster.isolate("c")
		reports.waitFor(t, "c has crashed, and b leads", func(r control.Report) bool {
			return r.Coordinator == "b" && r.Processes[0].Name == "c" && r.Processes[0].Status == "Crashed" &&
				r.ElectedAt.After(before.ElectedAt) && r.UsedTerm == r.Term && r.UsedTerm > before.UsedTerm
		})
		a := cluster.group("a")
		reports.mu.Lock()
		count := len(reports.reports)
		reports.mu.Unlock()
		for range 10 {
			a.Refresh() // Nothing has changed.
		}
		must.Succeed(t, a.AwaitRoundTrip(testwait.Context(t)))
		reports.mu.Lock()
		for i, r := range reports.reports[count:] {
			t.Errorf("got report %d without a change: %+v", i, r)
		}
		reports.mu.Unlock()
		list := memberlist.List{Version: 2, Members: a.cfg.Group.List.Members, Previous: a.cfg.Group.List.Bare()}
		must.Succeed(t, a.adopt(testwait.Context(t), list, config.Provenance{UID: "u", Generation: 2, Revision: 3}))
		reports.waitFor(t, "it has another list", func(r control.Report) bool {
			return r.Version == 2 && r.UID == "u" && r.Generation == 2 && r.Revision == 3 && r.Digest != before.Digest
		})
	})
}

// TestSlowMembersAreReported: no lease could be renewed, until messages are fast.
func TestSlowMembersAreReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster, reports := newReportingCluster(t, false, map[string]int{"a": 30, "b": 20, "c": 10})
		change := func(latency time.Duration) {
			cluster.mu.Lock()
			defer cluster.mu.Unlock()
			cluster.latency = latency
		}
		change((testLease - testLease/16 - 15*time.Millisecond) / 2)
		reports.waitFor(t, "it is too slow", func(r control.Report) bool {
			return r.TooSlow != nil && r.TooSlow.RoundTripMicros > r.TooSlow.LimitMicros && r.Coordinator == ""
		})
		change(0)
		time.Sleep(testLease) // The last slow messages arrive.
		reports.waitFor(t, "a leads", func(r control.Report) bool { return r.Coordinator == "a" && r.TooSlow == nil })
		expect.Equalf(t, cluster.group("a").cfg.Metrics.Tenures.Load(), 1, "tenures")
	})
}

// TestReportSaysSinceWhenItIsNotEligible: a new reason begins anew, and other changes don't.
func TestReportSaysSinceWhenItIsNotEligible(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster, reports := newReportingCluster(t, false, map[string]int{"a": 10, "b": 20, "c": 30})
		a := cluster.group("a")
		reports.waitFor(t, "c leads",
			func(r control.Report) bool { return r.Coordinator == "c" && r.Eligible && r.IneligibleSince.IsZero() })
		before := time.Now()
		reportUnhealthy(t, a)
		isSince := func(why Ineligibility, at time.Time) func(control.Report) bool {
			return func(r control.Report) bool { return r.Ineligible == why.String() && !r.IneligibleSince.Before(at) }
		}
		reports.waitFor(t, "the probe fails", isSince(ProbeFails, before))
		since := reports.last().IneligibleSince
		cluster.isolate("c")
		reports.waitFor(t, "b leads",
			func(r control.Report) bool { return r.Coordinator == "b" && r.IneligibleSince.Equal(since) })
		must.Succeed(t, a.Exclude(testwait.Context(t)))
		reports.waitFor(t, "it is excluded", isSince(Excluded, since.Add(1)))
	})
}

// TestExcludedProcessDoesNotLead: not even without another coordinator.
func TestExcludedProcessDoesNotLead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster, reports := newReportingCluster(t, true, map[string]int{"a": 10})
		if r := reports.last(); r.Eligible || !r.Excluded {
			t.Errorf("got report %+v, want excluded and not eligible", r)
		}
		a := cluster.group("a")
		must.Succeed(t, a.Readmit(testwait.Context(t)))
		reports.waitFor(t, "a leads", func(r control.Report) bool { return r.Coordinator == "a" && !r.Excluded })
		expect.ErrorIsf(t, a.Exclude(testwait.Context(t)), ErrNoSuccessor, "Exclude of the only member")
		if excluded, err := a.Excluded(testwait.Context(t)); err != nil || excluded {
			t.Errorf("Excluded after a refusal: got %t, %v", excluded, err)
		}
	})
}

func TestExcludedFollowerIsNotElected(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
		cluster.awaitFollowers("c", "a", "b")
		must.Succeed(t, cluster.group("b").Exclude(testwait.Context(t)))
		cluster.isolate("c")
		waitFor(t, cluster.group("a"), "a leads", isLeading)
	})
}

// TestRemovedMemberTakesPartUntilListIsSettled: it may be restarted before a majority
// of the previous list has adopted the current one, and counts for that majority.
func TestRemovedMemberTakesPartUntilListIsSettled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		old := memberlist.List{Version: 1, Members: []memberlist.Member{member("a", 10), member("b", 20), member("c", 30)}}
		list := memberlist.List{
			Version: 2, Members: []memberlist.Member{member("d", 40), member("e", 50)}, Previous: old.Bare(),
		}
		cluster := newCluster(t, map[string]int{"d": 40, "e": 50}, func(g *config.Group) { g.List = list })
		for i, name := range []string{"a", "b"} {
			expect.Equalf(t, cluster.group("e").Leader().Leading, false, "e leads without a majority of the previous list")
			settings := cluster.group("d").cfg.Group
			cluster.join(name, uint32(10+i), settings)
		}
		waitFor(t, cluster.group("e"), "e leads", isLeading)
		if s, err := cluster.group("a").Status(testwait.Context(t)); err != nil || s.Leading || s.Version != 2 {
			t.Errorf("a: got %+v, %v, want version 2, not leading", s, err)
		}
	})
}

// TestShortTenuresAreReported: the application of a fails in each tenure.
func TestShortTenuresAreReported(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster, reports := newReportingCluster(t, false, map[string]int{"a": 30, "b": 20, "c": 10})
		cluster.mu.Lock()
		cluster.latency = time.Millisecond
		cluster.mu.Unlock()
		for range 2 {
			reports.waitFor(t, "a leads", func(r control.Report) bool { return r.Coordinator == "a" })
			for _, healthy := range []bool{false, true} {
				must.Succeed(t, cluster.group("a").ReportProbe(testwait.Context(t), healthy))
				if !healthy {
					reports.waitFor(t, "b leads", func(r control.Report) bool { return r.Coordinator == "b" })
				}
			}
		}
		reports.waitForAny(t, "a is held back", func(r control.Report) bool {
			return r.Coordinator == "b" && r.ShortTenures == 2 && r.PenaltySeconds == 60
		})
		until, short := cluster.group("a").Penalty()
		status, err := cluster.group("a").Status(testwait.Context(t))
		must.Succeed(t, err)
		if !until.After(time.Now()) || short != 2 || status.ShortTenures != 2 || !status.HeldBackUntil.Equal(until) {
			t.Errorf("got a penalty until %s after %d, and status %+v, want both until later after 2", until, short, status)
		}
		testwait.Until(t, "c knows that", func() bool { return cluster.group("c").HeldBack() == 1 })
	})
}
