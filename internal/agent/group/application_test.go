package group

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestEachSessionHasItsOwnTenure: an application may end and be restarted before its agent detects it. If both had the
// same token, nothing could distinguish late writes of the first one from those of the second.
func TestEachSessionHasItsOwnTenure(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		s, later := openSession(t, g), openSession(t, g)
		first := nextEvent(t, s, Lead)
		renew(t, s)
		s.Close()
		expect.AtLeastf(t, nextEvent(t, later, Lead).Token, first.Token+1, "token")
		later.Close()
		waitFor(t, g, "there is no coordinator: no application runs",
			func(l Leader) bool { return !l.Leading && l.Coordinator == "" })
		nextEvent(t, openSession(t, g), Lead)
	})
}

func TestProcessWithoutRequiredSessionIsIneligible(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) { g.Session = true })
		a := openSession(t, cluster.group("a"))
		e := nextEvent(t, a, Lead) // The two processes with higher priority have no session.
		if l := waitFor(t, cluster.group("c"), "it follows a",
			func(l Leader) bool { return l.Coordinator == "a" }); l.Term != e.Term {
			t.Errorf("c: got term %d, want %d", l.Term, e.Term)
		}
		c := openSession(t, cluster.group("c"))
		stop := nextEvent(t, a, Stop)
		if stop.Successor != "c" || stop.Term != e.Term {
			t.Errorf("a: got %+v, want Stop in term %d with successor c", stop, e.Term)
		}
		must.Succeed(t, cluster.group("a").ConfirmStopped(testwait.Context(t), a.ID(), stop.Term))
		expect.AtLeastf(t, nextEvent(t, c, Lead).Token, e.Token+1, "c: token, above that of a")
	})
}

// TestNoSuccessorBeforeApplicationStopped: while the application doesn't confirm that
// it has stopped, the successor requests the office with each of its answers.
func TestNoSuccessorBeforeApplicationStopped(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) { g.Session = true })
		first, second := openSession(t, cluster.group("a")), openSession(t, cluster.group("a"))
		lead := nextEvent(t, first, Lead)
		openSession(t, cluster.group("c"))
		nextEvent(t, first, Stop)
		a := cluster.group("a")
		if l := a.Leader(); l.Leading || l.Token != 0 || l.Coordinator != "a" {
			t.Errorf("a after Stop: got %+v, want coordinator a, not leading", l)
		}
		for what, c := range map[string]struct {
			session string
			term    uint64
			want    error
		}{
			"an unknown session": {"unknown", lead.Term, ErrNoSession},
			"another session":    {second.ID(), lead.Term, ErrWrongTerm},
			"another term":       {first.ID(), lead.Term + 1, ErrWrongTerm},
		} {
			expect.ErrorIsf(t, a.ConfirmStopped(testwait.Context(t), c.session, c.term), c.want, "%s", what)
		}
		for _, name := range []string{"a", "b", "c"} {
			g := cluster.group(name)
			before := g.Watch()
			ctx := testwait.Context(t)
			for range 5 { // For five heartbeats, the state doesn't change.
				_, err := g.Status(ctx)
				must.Succeed(t, err)
				<-time.After(20 * time.Millisecond)
			}
			if c, err := before.Next(ctx); err != nil || c.Coordinator != "a" {
				t.Errorf("%s: got coordinator %q, %v, want a until its application has stopped", name, c.Coordinator, err)
			}
		}
		first.Close() // An application that has ended has stopped.
		waitFor(t, cluster.group("c"), "c leads", isLeading)
	})
}

// TestOnlyActingSessionIsLeading: an earlier run of the application must not continue with the token of the next one.
func TestOnlyActingSessionIsLeading(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		earlier, s := openSession(t, a), openSession(t, a)
		renew := func(session *Session, wanted uint64) {
			t.Helper()
			l, err := a.RenewSession(testwait.Context(t), session.ID())
			if err != nil || l.Coordinator != "a" || l.Token != wanted || l.Leading != (wanted != 0) ||
				(l.RemainingMillis != nil) != l.Leading {
				t.Errorf("got %+v, %v, want token %d", l, err, wanted)
			}
		}
		lead := nextEvent(t, earlier, Lead)
		renew(earlier, lead.Token)
		renew(s, 0)
		earlier.Close()
		lead = nextEvent(t, s, Lead)
		renew(s, lead.Token)
		for _, id := range []string{earlier.ID(), ""} {
			if l, err := a.RenewSession(testwait.Context(t), id); !errors.Is(err, ErrNoSession) {
				t.Errorf("session %q, which isn't open: got %+v, %v", id, l, err)
			}
		}
	})
}

func TestDrainTimeoutEndsTenure(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
			g.Session, g.Timing.DrainTimeout = true, 50*time.Millisecond
		})
		a := openSession(t, cluster.group("a"))
		nextEvent(t, a, Lead)
		openSession(t, cluster.group("c"))
		stop := nextEvent(t, a, Stop)
		nextEvent(t, a, Lost)
		waitFor(t, cluster.group("c"), "c leads", isLeading)
		expect.ErrorIsf(t, cluster.group("a").ConfirmStopped(testwait.Context(t), a.ID(), stop.Term), ErrWrongTerm,
			"late confirmation")
	})
}

func TestProbeDeterminesEligibility(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
		waitFor(t, cluster.group("c"), "c leads", isLeading)
		must.Succeed(t, cluster.group("c").ReportProbe(testwait.Context(t), false))
		waitFor(t, cluster.group("b"), "b leads", isLeading)
		must.Succeed(t, cluster.group("c").ReportProbe(testwait.Context(t), true))
		waitFor(t, cluster.group("c"), "c leads again", isLeading)

		s := openSession(t, cluster.group("c"))
		lead := nextEvent(t, s, Lead)
		waitFor(t, cluster.group("b"), "b follows c", func(l Leader) bool { return l.Coordinator == "c" })
		must.Succeed(t, cluster.group("c").ReportProbe(testwait.Context(t), false))
		nextEvent(t, s, Stop)
		expect.Equalf(t, cluster.group("b").Leader().Coordinator, "c", "coordinator until its application has stopped")
		must.Succeed(t, cluster.group("c").ConfirmStopped(testwait.Context(t), s.ID(), lead.Term))
		waitFor(t, cluster.group("b"), "b leads again", isLeading)
	})
}

// TestTenureEndsAfterStopEvenIfHealthyAgain: a probe may succeed again before the
// application has stopped, or the drain timeout has passed.
func TestTenureEndsAfterStopEvenIfHealthyAgain(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{"it stops": time.Minute, "it doesn't": 50 * time.Millisecond} {
		runInVirtualTime(t, name, func(t *testing.T) {
			c := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30},
				func(g *config.Group) { g.Timing.DrainTimeout = drain }).group("c")
			s := openSession(t, c)
			lead := nextEvent(t, s, Lead)
			reportUnhealthy(t, c)
			must.Succeed(t, c.ReportProbe(testwait.Context(t), true))
			stop := nextEvent(t, s, Stop)
			if drain < time.Minute {
				nextEvent(t, s, Lost)
			} else if err := c.ConfirmStopped(testwait.Context(t), s.ID(), stop.Term); err != nil {
				t.Fatal(err)
			}
			if again := nextEvent(t, s, Lead); again.Token <= lead.Token { // It has the highest priority.
				t.Errorf("got token %d, want one above %d", again.Token, lead.Token)
			}
		})
	}
}

// TestUnhealthyProcessIsIneligible: also if its lease expires before it has stopped.
func TestUnhealthyProcessIsIneligible(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		s := openSession(t, a)
		nextEvent(t, s, Lead)
		reportUnhealthy(t, a)
		nextEvent(t, s, Stop)
		expireLease(t, a)
		nextEvent(t, s, Lost)
		must.Succeed(t, a.call(testwait.Context(t), func() {
			expect.Equalf(t, a.app.eligible, false, "eligible")
		}))
	})
}

// expireLease blocks the goroutine of a group until its lease has expired.
func expireLease(t *testing.T, g *Group) {
	t.Helper()
	release := hold(t, g)
	defer release()
	for ctx := testwait.Context(t); g.cfg.Clock.Until(g.published.Load().until) > 0; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
}

// TestLeaderChecksLease: also while the goroutine of the group is blocked.
func TestLeaderChecksLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		l := waitFor(t, g, "a leads", isLeading)
		if l := g.Leader(); l.RemainingMillis == nil || *l.RemainingMillis > testLease.Milliseconds() {
			t.Errorf("got %+v, want at most %s remaining", l, testLease)
		}
		release := hold(t, g)
		ctx := testwait.Context(t)
		for g.Leader().Leading && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if now := g.Leader(); now.Leading || now.Token != 0 || now.Coordinator != "" {
			t.Errorf("got %+v after the end of the lease, want no coordinator", now)
		}
		release()
		if again := waitFor(t, g, "a leads in a new term", func(now Leader) bool {
			return now.Leading && now.Term > l.Term
		}); again.Token <= l.Token {
			t.Errorf("got token %d, want one above %d", again.Token, l.Token)
		}
	})
}

func reportUnhealthy(t *testing.T, g *Group) {
	t.Helper()
	must.Succeed(t, g.ReportProbe(testwait.Context(t), false))
}

// TestLeadOfExpiredTenureIsSkipped: a session that is opened, or reads its events,
// after an unnoticed end of the lease doesn't receive Lead for that tenure.
func TestLeadOfExpiredTenureIsSkipped(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
		c := cluster.group("c")
		waiting := openSession(t, c)
		l := waitFor(t, c, "c leads", isLeading)
		release := hold(t, c)
		opened := make(chan *Session)
		go func() { opened <- openSession(t, c) }()
		waitFor(t, cluster.group("b"), "b leads", isLeading)
		release()
		for _, s := range []*Session{waiting, <-opened} {
			for {
				e, err := s.Next(testwait.Context(t))
				must.Succeed(t, err)
				if e.Kind == Lead && e.Term == l.Term {
					t.Errorf("got Lead in term %d, which is over", e.Term)
				}
				if e.Kind == Lead {
					break // It leads again, because it has the highest priority.
				}
			}
			s.Close() // Then the next session leads.
		}
	})
}

// TestCanceledCallReturnsNothing: the goroutine of the group may still write to the result.
func TestCanceledCallReturnsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		for what, call := range map[string]func(context.Context) (any, error){
			"Status":   func(ctx context.Context) (any, error) { return g.Status(ctx) },
			"Excluded": func(ctx context.Context) (any, error) { return g.Excluded(ctx) },
		} {
			release := hold(t, g)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for len(g.inbox) == 0 {
					runtime.Gosched()
				}
				cancel()
				<-ctx.Done()
				release()
			}()
			if answer, err := call(ctx); err != nil && !reflect.ValueOf(answer).IsZero() {
				t.Errorf("%s: got %+v, %v, want no result", what, answer, err)
			}
		}
	})
}
