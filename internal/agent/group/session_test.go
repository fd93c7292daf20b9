package group

import (
	"errors"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestStraySessionChangesNothing: somebody who debugs, or a crawler, opens the stream of each
// member once, and closes it.
func TestStraySessionChangesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
		before := waitFor(t, cluster.group("c"), "c leads", isLeading)
		for _, name := range []string{"a", "b", "c"} {
			g := cluster.group(name)
			waitFor(t, g, "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
			s := openSession(t, g)
			if name == "c" {
				nextEvent(t, s, Lead)
			}
			s.Close()
			must.Succeed(t, g.AwaitRoundTrip(testwait.Context(t)))
			expect.Equalf(t, ineligibility(t, g), Eligible, "%s: eligibility", name)
		}
		expect.Equalf(t, cluster.group("c").Leader().Token, before.Token, "token")
		// The stray session hasn't acted with this token, so an application may.
		s := openSession(t, cluster.group("c"))
		expect.Equalf(t, nextEvent(t, s, Lead).Token, before.Token, "token")
		renew(t, s)
		s.Close()
		waitFor(t, cluster.group("b"), "b leads: the application of c has ended", isLeading)
	})
}

// TestIntroducedSessionCounts: a member whose application ends before it has ever led must not be elected.
func TestIntroducedSessionCounts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		cluster := newCluster(t, map[string]int{"a": 10, "b": 20, "c": 30}, nil)
		waitFor(t, cluster.group("c"), "c leads", isLeading)
		b := cluster.group("b")
		waitFor(t, b, "it follows c", func(l Leader) bool { return l.Coordinator == "c" })
		s := openSession(t, b)
		if l, err := b.RenewSession(testwait.Context(t), s.ID()); err != nil || l.Leading {
			t.Errorf("got %+v, %v, want a follower", l, err)
		}
		s.Close()
		if _, err := b.RenewSession(testwait.Context(t), s.ID()); !errors.Is(err, ErrNoSession) {
			t.Errorf("got error %v, want %v", err, ErrNoSession)
		}
		expect.Equal(t, ineligibility(t, b), NoSession)
		cluster.group("c").Leave(t.Context(), control.EndStopped)
		waitFor(t, cluster.group("a"), "a leads", isLeading)
	})
}

// TestRequiredSessionCounts: the tenure ends with the session, which may rely on events alone.
func TestRequiredSessionCounts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newCluster(t, map[string]int{"a": 10}, func(g *config.Group) { g.Session = true }).group("a")
		s := openSession(t, g)
		nextEvent(t, s, Lead)
		s.Close()
		waitFor(t, g, "there is no coordinator", func(l Leader) bool { return l.Coordinator == "" })
	})
}

// TestStatusHasSessions: when they were opened and last renewed, and since when there is none.
func TestStatusHasSessions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newCluster(t, map[string]int{"a": 10}, nil).group("a")
		start := time.Now()
		s, later := openSession(t, g), openSession(t, g)
		nextEvent(t, s, Lead)
		status := func() Status {
			t.Helper()
			status, err := g.Status(testwait.Context(t))
			must.Succeed(t, err)
			return status
		}
		opened := status().Sessions
		renew(t, s)
		renewed := status()
		if len(opened) != 2 || opened[0].OpenedAt.Before(start) || !opened[0].RenewedAt.IsZero() ||
			opened[1].OpenedAt.Before(opened[0].OpenedAt) {
			t.Fatalf("got sessions %+v, want two that have never renewed", opened)
		}
		now := renewed.Sessions
		if !now[0].Leads || now[1].Leads || now[0].RenewedAt.Before(opened[1].OpenedAt) || now[0].RenewedMillisAgo == nil ||
			now[1].RenewedMillisAgo != nil || !renewed.IneligibleSince.IsZero() {
			t.Errorf("got status %+v, want that the first session leads and has renewed", renewed)
		}
		later.Close()
		s.Close()
		if without := status(); len(without.Sessions) > 0 || without.IneligibleSince.Before(start) {
			t.Errorf("got status %+v, want no sessions, and since when", without)
		}
	})
}

// ineligibility returns why a process is not eligible.
func ineligibility(t *testing.T, g *Group) (why Ineligibility) {
	t.Helper()
	must.Succeed(t, g.AwaitRoundTrip(testwait.Context(t)))
	return g.Ineligible()
}
