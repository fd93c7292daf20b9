package group

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

const (
	// renewalFactor is how many times as long as between two renewals the agent waits for the
	// next one. The client renews four times in a lease.
	renewalFactor = 4
	// renewalMax bounds this wait. The lease may be longer.
	renewalMax = 15 * time.Second
)

// renewals are those of a session in its current tenure.
type renewals struct {
	term election.Term
	last time.Time
	// longest is the longest time between two answers. It is 0 until the first renewal: the
	// first answer only confirms the tenure.
	longest time.Duration
	// due is when the next renewal is due.
	due time.Time
}

// renewed notes that the acting session was told that it leads. Once it has renewed, it must
// continue: otherwise, its process is stopped or hangs, and keeps only the stream open. A
// client that has never renewed in a tenure may rely on the events alone.
func (g *Group) renewed(s *Session) {
	r, now := &s.renewals, time.Now()
	if r.term != g.app.term {
		*r = renewals{term: g.app.term, last: now}
		return
	}
	first := r.longest == 0
	r.longest, r.last = max(r.longest, now.Sub(r.last), 1), now
	// It isn't due before the end of what it is promised, which is a lease at most.
	r.due = now.Add(max(g.shortestRenewal(), min(renewalFactor*r.longest, renewalMax)))
	if first {
		g.watchRenewals(s, r.term)
	}
}

// shortestRenewal returns the least time that a session has until its next renewal.
func (g *Group) shortestRenewal() time.Duration {
	if g.cfg.Group.Safety.Mode == office.Available { // It has no lease.
		return g.cfg.Group.Timing.SuspicionTimeout
	}
	return g.cfg.Group.Safety.Lease
}

// watchRenewals closes a session that isn't renewed in time while it acts. If it was asked
// to stop, the drain timeout limits it instead.
func (g *Group) watchRenewals(s *Session, term election.Term) {
	due := s.renewals.due
	wait := func(d time.Duration, overdue func()) {
		g.after(d, func() {
			switch {
			case g.app.acting != s || g.app.term != term || g.app.stopping: // It doesn't act any more.
			case !s.renewals.due.Equal(due):
				g.watchRenewals(s, term)
			default:
				overdue()
			}
		})
	}
	wait(time.Until(due), func() {
		// If the agent itself was paused, a renewal may wait in its socket.
		wait(g.cfg.Group.Timing.Heartbeat/2, func() {
			g.cfg.Log.Warn("closed session: its application stopped renewing", "term", uint64(term),
				"silence", time.Since(s.renewals.last).Round(time.Millisecond).String())
			s.finish(ErrNotRenewed)
			g.sessionClosed(s)
		})
	})
}

// after passes a function to the goroutine of run after a time, unless the group was left.
func (g *Group) after(wait time.Duration, act func()) {
	time.AfterFunc(wait, func() { _ = g.enqueue(act) })
}
