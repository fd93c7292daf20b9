package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestSessionThatStopsRenewingIsClosed: its process is stopped or hangs, and the kernel keeps its stream open.
func TestSessionThatStopsRenewingIsClosed(t *testing.T) {
	t.Parallel()
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		runInVirtualTime(t, mode.String(), func(t *testing.T) {
			cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30},
				func(g *config.Group) { g.Safety.Mode, g.Session = mode, true })
			c := cluster.group("c")
			s := openSession(t, c)
			nextEvent(t, s, Lead)
			waitFor(t, cluster.group("b"), "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
			openSession(t, cluster.group("b"))
			for start := time.Now(); time.Since(start) < 2*testLease; time.Sleep(testLease / 20) {
				renew(t, s)
			}
			start := time.Now()
			last := renew(t, s)
			waitFor(t, cluster.group("b"), "b leads", isLeading)
			took := time.Since(start)
			if left := last.RemainingMillis; left != nil && took < time.Duration(*left)*time.Millisecond {
				t.Errorf("b leads after %s, although the session may act for %d ms", took, *left)
			}
			expect.AtMostf(t, took, testLease+time.Second, "time until b leads")
			if e, err := s.Next(testwait.Context(t)); !errors.Is(err, ErrNotRenewed) {
				t.Errorf("got event %+v, %v, want %v", e, err, ErrNotRenewed)
			}
			if l, err := c.RenewSession(testwait.Context(t), s.ID()); !errors.Is(err, ErrNoSession) {
				t.Errorf("late renewal: got %+v, %v, want %v", l, err, ErrNoSession)
			}
		})
	}
}

// TestSessionThatDoesNotAnswerIsClosed: its process was stopped before it was asked to lead. One that answers once and
// doesn't renew is closed, too.
func TestSessionThatDoesNotAnswerIsClosed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ answers, required bool }{{false, false}, {false, true}, {true, true}} {
		runInVirtualTime(t, fmt.Sprintf("%+v", test), func(t *testing.T) {
			cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30},
				func(g *config.Group) { g.Session = test.required })
			c, next := cluster.group("c"), cluster.group("b")
			s := openSessionThat(t, c, true)
			nextEvent(t, s, Lead)
			if test.answers {
				renew(t, s)
			}
			nextEvent(t, openSession(t, next), Lead)
			if e, err := s.Next(testwait.Context(t)); !errors.Is(err, ErrNotRenewed) {
				t.Errorf("got event %+v, %v, want %v", e, err, ErrNotRenewed)
			}
		})
	}
}

// TestSlowRenewals: an application may renew at its own pace, and one that relies on events need not renew.
func TestSlowRenewals(t *testing.T) {
	t.Parallel()
	const shortest = 200 * time.Millisecond
	for name, interval := range map[string]time.Duration{"slow": 2 * shortest, "none": time.Hour} {
		runInVirtualTime(t, name, func(t *testing.T) {
			a := newCluster(t, map[string]int{"a": 10}, func(g *config.Group) {
				g.Safety.Mode, g.Timing.SuspicionTimeout = office.Available, shortest
			}).group("a")
			s := openSession(t, a)
			lead := nextEvent(t, s, Lead)
			renew(t, s)
			for start, next := time.Now(), time.Now().Add(interval); time.Since(start) < 8*shortest; time.Sleep(shortest / 10) {
				if time.Now().After(next) {
					renew(t, s)
					next = next.Add(interval)
				}
			}
			expect.Equalf(t, renew(t, s).Token, lead.Token, "token")
		})
	}
}

// TestSessionIsNotClosedBeforeItsPromiseEnds: the lease was longer before, because renewals were late.
func TestSessionIsNotClosedBeforeItsPromiseEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		s := openSession(t, a)
		nextEvent(t, s, Lead)
		renew(t, s)
		const promise = 10 * testLease
		must.Succeed(t, a.call(testwait.Context(t), func() { s.promisedUntil = a.cfg.Clock.Now() + election.Tick(promise) }))
		start := time.Now()
		renew(t, s)
		if e, err := s.Next(testwait.Context(t)); !errors.Is(err, ErrNotRenewed) || time.Since(start) < promise {
			t.Errorf("got event %+v, %v after %s, want %v after %s", e, err, time.Since(start), ErrNotRenewed, promise)
		}
	})
}

// renew renews a session that leads.
func renew(t *testing.T, s *Session) Leader {
	t.Helper()
	l, err := s.group.RenewSession(testwait.Context(t), s.ID())
	if err != nil || !l.Leading {
		t.Fatalf("got %+v, %v, want leading", l, err)
	}
	return l
}

// TestSessionThatStopsLearnsTheLease: the drain timeout may be longer than the lease, or shorter, and the agent may be
// paused in the meantime.
func TestSessionThatStopsLearnsTheLease(t *testing.T) {
	t.Parallel()
	for drain, mode := range map[time.Duration]office.Mode{
		time.Minute: office.Available, time.Hour: office.Majority, testLease / 4: office.Majority,
	} {
		runInVirtualTime(t, mode.String(), func(t *testing.T) {
			c := newCluster(t, map[string]int{"c": 30},
				func(g *config.Group) { g.Safety.Mode, g.Timing.DrainTimeout = mode, drain }).group("c")
			s, other := openSession(t, c), openSession(t, c)
			nextEvent(t, s, Lead)
			reportUnhealthy(t, c)
			nextEvent(t, s, Stop)
			l, err := c.RenewSession(testwait.Context(t), s.ID())
			waiting, otherErr := c.RenewSession(testwait.Context(t), other.ID())
			err = errors.Join(err, otherErr)
			must.Succeed(t, err)
			if l.Leading || l.Token != 0 || waiting.RemainingMillis != nil {
				t.Errorf("got %+v and %+v, want that nobody leads, and no remaining time for a session that waits", l, waiting)
			}
			if mode == office.Available {
				expect.Equalf(t, l.RemainingMillis == nil, true, "no lease")
				return
			}
			if most := min(testLease, drain); l.RemainingMillis == nil || *l.RemainingMillis <= 0 ||
				*l.RemainingMillis > most.Milliseconds() {
				t.Errorf("got %+v, want a remaining time of at most %s", l, most)
			}
			expect.Equalf(t, c.Lease(), testLease, "lease")
		})
	}
}

// TestSessionMayPause: a lease of a tenth of a second is no reason to close the session of an application that pauses
// for longer.
func TestSessionMayPause(t *testing.T) {
	t.Parallel()
	runInVirtualTime(t, "", func(t *testing.T) {
		const usual = 100 * time.Millisecond
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, func(g *config.Group) {
			g.Session = true
			g.Safety.Lease, g.Safety.UsualLease = 2*time.Second, usual
			g.Timing.Heartbeat, g.Timing.SuspicionTimeout = usual/5, usual*4/5
		})
		c := cluster.group("c")
		s := openSession(t, c)
		nextEvent(t, s, Lead)
		for range 20 {
			renew(t, s)
			time.Sleep(usual / 4)
		}
		time.Sleep(4 * usual)
		renew(t, s)
	})
}
