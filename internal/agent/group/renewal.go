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
	// answerMax is how long a session that renews may take to answer Lead, and to renew for the first time, since its pace isn't
	// known yet. A lease that is longer counts instead.
	answerMax = 2 * time.Second
)

type renewals struct {
	term election.Term
	// answered is set with the first answer, which confirms the tenure. last is the time of the last answer, or of Lead.
	answered bool
	last     time.Time
	// longest is the longest time between two answers, and 0 until the second one.
	longest time.Duration
	// promise is how long the application could act after the last answer without another one, and not positive without a lease.
	promise time.Duration
	// late is the time of the last answer that came after missed: a request may have waited while the agent was paused.
	late time.Time
	// due is when the next answer is due. It is zero if none is.
	due time.Time
}

// awaitAnswer lets the session's tenure end unless it answers Lead. Its process may have been stopped long before.
func (g *Group) awaitAnswer(s *Session) {
	now := time.Now()
	s.renewals = renewals{term: g.app.term, last: now, due: now.Add(max(g.shortestRenewal(), answerMax))}
	g.watchRenewals(s, g.app.term)
}

// renewed notes that the acting session was told that it leads. Once it has renewed, it must
// continue: otherwise, its process is stopped or hangs, and keeps only the stream open. A
// client that has never renewed in a tenure may rely on the events alone, unless it has said
// that it renews.
func (g *Group) renewed(s *Session) {
	r, now := &s.renewals, time.Now()
	if r.term != g.app.term {
		*r = renewals{term: g.app.term}
	}
	wait := answerMax
	if r.missed(now) {
		r.late = now
	}
	r.promise = g.cfg.Clock.Until(s.promisedUntil)
	if r.answered {
		r.longest = max(r.longest, now.Sub(r.last), 1)
		wait = min(renewalFactor*r.longest, renewalMax)
	}
	r.answered, r.last = true, now
	if r.longest == 0 && !s.renews {
		return
	}
	watched := !r.due.IsZero()
	// It isn't due before the end of what it is promised.
	r.due = now.Add(max(g.shortestRenewal(), wait, g.cfg.Clock.Until(s.promisedUntil)))
	if !watched {
		g.watchRenewals(s, r.term)
	}
}

// missed reports whether renewals are missing, because the application or this agent was paused. The clients renew when a quarter of
// the promise has passed. Some end their tenure when a quarter is left.
func (r *renewals) missed(now time.Time) bool { return r.promise > 0 && now.Sub(r.last) > r.promise/2 }

// closeCause returns why a tenure ends whose session its application has closed. A client also does that if the agent doesn't confirm the
// tenure in time. A request that had waited meanwhile may be answered before that.
func (s *Session) closeCause(now time.Time) Cause {
	r := &s.renewals
	if s.renews && (r.missed(now) || now.Sub(r.late) < r.promise) {
		return CauseNotRenewed
	}
	return CauseSessionClosed
}

// longestStall is a pause of an application that isn't a reason to close its session, such as one of a garbage collector. Nobody
// may act beyond a promise meanwhile.
const longestStall = 500 * time.Millisecond

// shortestRenewal returns the least time that a session has until its next renewal.
func (g *Group) shortestRenewal() time.Duration {
	if g.cfg.Group.Safety.Mode == office.Available { // It has no lease.
		return g.cfg.Group.Timing.SuspicionTimeout
	}
	safety := &g.cfg.Group.Safety
	return max(safety.Usual(), min(safety.Lease, longestStall))
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
			g.app.requiresSession = true // An application that renews isn't a stray request.
			s.finish(ErrNotRenewed)
			g.sessionClosed(s)
		})
	})
}

// after passes a function to the goroutine of run after a time, unless the group was left.
func (g *Group) after(wait time.Duration, act func()) {
	time.AfterFunc(wait, func() { _ = g.enqueue(act) })
}
