package group

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestPromiseIsLimitedToDrainTimeout: the lease may be longer.
func TestPromiseIsLimitedToDrainTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		members map[string]int
		leave   func(*testing.T, *Group)
	}{
		"it hands over": {map[string]int{"a": 10, "b": 20, "c": 30}, func(t *testing.T, g *Group) {
			must.Succeed(t, retryStepDown(testwait.Context(t), g.stepDownTo("b")))
		}},
		"its application doesn't stop": {map[string]int{"c": 30}, func(t *testing.T, g *Group) {
			s := openSession(t, g)
			nextEvent(t, s, Lead)
			reportUnhealthy(t, g)
			nextEvent(t, s, Stop)
			nextEvent(t, s, Lost)
		}},
		"it leaves": {map[string]int{"c": 30}, func(t *testing.T, g *Group) {
			g.Leave(testwait.Context(t), control.EndStopped)
		}},
	} {
		runInVirtualTime(t, name, func(t *testing.T) {
			cluster := newCluster(t, c.members, func(g *config.Group) {
				g.Preemption.Stable = time.Minute
				g.Timing.DrainTimeout = 100 * time.Millisecond
			})
			leader := cluster.group("c")
			waitFor(t, leader, "c leads", isLeading)
			for name := range c.members {
				waitFor(t, cluster.group(name), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
			}
			until := promiseOf(t, leader)
			c.leave(t, leader)
			expect.AtMostf(t, time.Until(until), 0, "time until the end of the promise")
		})
	}
}

// TestPromiseOutlivesItsDrainTimeout: a shorter drain timeout limits later promises, but not
// those that were given before. When these are over, it is in force.
func TestPromiseOutlivesItsDrainTimeout(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *Group){
		"it hands over": func(t *testing.T, g *Group) {
			must.Succeed(t, retryStepDown(testwait.Context(t), g.stepDownTo("b")))
			testwait.Until(t, "the new drain timeout is in force", func() bool { return g.DrainTimeout() == time.Millisecond })
		},
		"its application doesn't stop": func(t *testing.T, g *Group) {
			s := openSession(t, g)
			nextEvent(t, s, Lead)
			reportUnhealthy(t, g)
			nextEvent(t, s, Stop)
			e, err := s.Next(testwait.Context(t))
			if err == nil && e.Kind == SettingsChanged { // The new drain timeout is in force just before or after the end.
				e, err = s.Next(testwait.Context(t))
			}
			if err != nil || e.Kind != Lost {
				t.Errorf("got event %+v, %v, want %s", e, err, Lost)
			}
		},
		"it leaves": func(t *testing.T, g *Group) { g.Leave(testwait.Context(t), control.EndStopped) },
	} {
		runInVirtualTime(t, name, func(t *testing.T) {
			cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
				g.Preemption.Stable = time.Minute
				g.Safety.Lease = 5 * time.Second
			})
			leader := cluster.group("c")
			waitFor(t, leader, "c leads", isLeading)
			cluster.awaitFollowers("c", "a", "b")
			start := time.Now()
			l, err := leader.LeaderWithPromise(testwait.Context(t), 3*time.Second)
			if err != nil || l.RemainingMillis == nil || *l.RemainingMillis < 1500 {
				t.Fatalf("got %+v, %v, want a promise", l, err)
			}
			until := start.Add(time.Duration(*l.RemainingMillis) * time.Millisecond)
			next := leader.cfg.Group
			next.Timing.DrainTimeout = time.Millisecond
			must.Succeed(t, leader.Use(testwait.Context(t), next))
			if l, err := leader.LeaderWithPromise(testwait.Context(t), 3*time.Second); err != nil ||
				l.RemainingMillis == nil || *l.RemainingMillis > 1 {
				t.Errorf("got %+v, %v, want a promise for at most 1 ms", l, err)
			}
			leave(t, leader)
			expect.AtMostf(t, time.Until(until), 0, "time until the end of the promise")
		})
	}
}

// TestSuccessorWaitsForPromiseOfSession: an application that is paused can't be asked to
// stop, and acts once more when it continues. The lease is longer than the drain timeout.
func TestSuccessorWaitsForPromiseOfSession(t *testing.T) {
	t.Parallel()
	for name, becomesShorter := range map[string]bool{"the drain timeout is short": false, "it becomes shorter": true} {
		runInVirtualTime(t, name, func(t *testing.T) {
			cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
				g.Preemption.Stable = time.Minute
				g.Safety.Lease, g.Timing.DrainTimeout = 5*time.Second, 300*time.Millisecond
			})
			leader := cluster.group("c")
			s := openSession(t, leader)
			nextEvent(t, s, Lead)
			waitFor(t, cluster.group("b"), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
			var until time.Time
			request := leader.stepDownTo("b")
			err := retryStepDown(testwait.Context(t), func(ctx context.Context) error {
				start := time.Now()
				renewed, err := leader.RenewSession(ctx, s.ID())
				if err != nil || !renewed.Leading {
					return err
				}
				until = start.Add(time.Duration(*renewed.RemainingMillis) * time.Millisecond)
				if becomesShorter {
					next := leader.cfg.Group
					next.Timing.DrainTimeout = time.Millisecond
					if err := leader.Use(ctx, next); err != nil {
						return err
					}
				}
				return request(ctx)
			})
			must.Succeed(t, err)
			expect.AtMostf(t, time.Until(until), 0, "time until the end of the promise")
		})
	}
}

// TestPromiseIsLimitedToRequest: and a query without a promise makes none.
func TestPromiseIsLimitedToRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		waitFor(t, a, "a leads", isLeading)
		promised := func() (until election.Tick) {
			must.Succeed(t, a.call(testwait.Context(t), func() { until = a.promisedUntil }))
			return until
		}
		if l := a.Leader(); !l.Leading || promised() != 0 {
			t.Errorf("got %+v and a promise until %d, want leading without a promise", l, promised())
		}
		const limit = 10 * time.Millisecond
		l, err := a.LeaderWithPromise(testwait.Context(t), limit)
		if err != nil || l.RemainingMillis == nil || *l.RemainingMillis > limit.Milliseconds() {
			t.Errorf("got %+v, %v, want at most %s remaining", l, err, limit)
		}
		expect.AtMostf(t, a.cfg.Clock.Until(promised()), limit, "time of the promise")
	})
}

// TestNoPromiseWithoutDrainTimeout: but the coordinator is reported.
func TestNoPromiseWithoutDrainTimeout(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a := newCluster(t, map[string]int{"a": 10}, func(g *config.Group) { g.Timing.DrainTimeout = 0 }).group("a")
		waitFor(t, a, "a leads", isLeading)
		if l, err := a.LeaderWithPromise(testwait.Context(t), time.Hour); err != nil || !l.Leading || l.Token == 0 ||
			l.RemainingMillis == nil || *l.RemainingMillis != 0 {
			t.Errorf("got %+v, %v, want leading with 0 ms remaining", l, err)
		}
	})
}

// TestNoPromiseDuringResignation: the log may block in the middle of it.
func TestNoPromiseDuringResignation(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10}, nil)
		cfg := cluster.group("a").cfg
		cluster.group("a").Leave(testwait.Context(t), control.EndStopped)
		resigns, resume := make(chan struct{}), make(chan struct{})
		cfg.Log = slog.New(logHandler(func(r slog.Record) {
			if r.Message == election.OfficeResigned.String() {
				close(resigns)
				<-resume
			}
		}))
		a, err := New(cfg)
		must.Succeed(t, err)
		defer a.Leave(t.Context(), control.EndStopped)
		waitFor(t, a, "a leads", isLeading)
		reported := make(chan error, 1)
		ctx := testwait.Context(t)
		go func() { reported <- a.ReportProbe(ctx, false) }()
		testwait.Receive(t, "the resignation", resigns)
		answers := make(chan Leader, 1)
		go func() {
			l, _ := a.LeaderWithPromise(ctx, time.Hour)
			answers <- l
		}()
		for len(a.inbox)+len(answers) == 0 {
			runtime.Gosched()
		}
		close(resume)
		expect.Succeed(t, <-reported)
		expect.Equalf(t, (<-answers).Leading, false, "leading without an application")
	})
}

// logHandler handles the lines of a log.
type logHandler func(slog.Record)

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	h(r)
	return nil
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h logHandler) WithGroup(string) slog.Handler            { return h }

// TestPromiseOutlivesApplication: a part of a dead application may still run without a
// session, and act as it was promised.
func TestPromiseOutlivesApplication(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		session bool
		die     func(*testing.T, *Group, *Session)
	}{
		"a probe fails":   {false, func(t *testing.T, g *Group, _ *Session) { reportUnhealthy(t, g) }},
		"a session ends":  {true, func(_ *testing.T, _ *Group, s *Session) { s.Close() }},
		"another is open": {true, func(t *testing.T, g *Group, s *Session) { openSession(t, g); s.Close() }},
		"it hands over": {true, func(t *testing.T, g *Group, s *Session) {
			go func() { _ = retryStepDown(context.WithoutCancel(t.Context()), g.stepDownTo("b")) }()
			nextEvent(t, s, Stop)
			s.Close()
		}},
		"it stops since a probe fails": {true, func(t *testing.T, g *Group, s *Session) {
			reportUnhealthy(t, g)
			stop := nextEvent(t, s, Stop)
			expect.Succeed(t, g.ConfirmStopped(testwait.Context(t), s.ID(), stop.Term))
			reportUnhealthy(t, g)
		}},
	} {
		runInVirtualTime(t, name, func(t *testing.T) {
			cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
				g.Preemption.Stable = time.Minute
			})
			leader := cluster.group("c")
			var s *Session
			if c.session {
				s = openSession(t, leader)
			}
			first := waitFor(t, leader, "c leads", isLeading)
			cluster.awaitFollowers("c", "a", "b")
			if c.session {
				nextEvent(t, s, Lead)
				renew(t, s)
			}
			until := promiseOf(t, leader)
			c.die(t, leader, s)
			must.Succeed(t, leader.AwaitRoundTrip(testwait.Context(t))) // Afterwards, the event is processed.
			expect.Equalf(t, leader.Leader().Leading, false, "leading without an application")
			waitFor(t, cluster.group("a"), "there is another coordinator",
				func(l Leader) bool { return l.Coordinator != "" && l.Term > first.Term })
			expect.AtMostf(t, time.Until(until), 0, "time until the end of the promise")
		})
	}
}

// promiseOf requests a promise from the coordinator, and returns its end.
func promiseOf(t *testing.T, g *Group) time.Time {
	t.Helper()
	start := time.Now()
	l, err := g.LeaderWithPromise(testwait.Context(t), time.Hour)
	if err != nil || l.RemainingMillis == nil {
		t.Fatalf("%s: got %+v, %v, want a remaining time", g.cfg.Self, l, err)
	}
	return start.Add(time.Duration(*l.RemainingMillis) * time.Millisecond)
}
