package group

import (
	"context"
	"math"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// renewalFactor is how many times as long as between two renewals the agent waits for the
	// next one. The client renews four times in a lease.
	renewalFactor = 4
	// renewalMax bounds this wait. The lease may be longer.
	renewalMax = 15 * time.Second
	// answerMax is how long a session that renews may take to answer Lead, and to renew for the first time, since its pace
	// isn't known yet. A lease that is longer counts instead.
	answerMax = 2 * time.Second
)

type renewals struct {
	term election.Term
	// answered is set with the first answer, which confirms the tenure. last is the time of the last answer, or of Lead.
	answered bool
	last     time.Time
	// longest is the longest time between two answers, and 0 until the second one.
	longest time.Duration
	// promise is how long the application could act after the last answer without another one, and not positive without a
	// lease.
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

// renewed notes that the acting session was told that it leads. Once it has renewed, it must continue: otherwise, its
// process is stopped or hangs, and keeps only the stream open. A client that has never renewed in a tenure may rely on
// the events alone, unless it has said that it renews.
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

// missed reports whether renewals are missing, because the application or this agent was paused. The clients renew when
// a quarter of the promise has passed. Some end their tenure when a quarter is left.
func (r *renewals) missed(now time.Time) bool { return r.promise > 0 && now.Sub(r.last) > r.promise/2 }

// closeCause returns why a tenure ends whose session its application has closed. A client also does that if the agent
// doesn't confirm the tenure in time. A request that had waited meanwhile may be answered before that.
func (s *Session) closeCause(now time.Time) control.EndCause {
	r := &s.renewals
	if s.renews && (r.missed(now) || now.Sub(r.late) < r.promise) {
		return control.EndNotRenewed
	}
	return control.EndSessionClosed
}

// longestStall is a pause of an application that isn't a reason to close its session, such as one of a garbage
// collector. Nobody may act beyond a promise meanwhile.
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
			s.events.close(ErrNotRenewed)
			g.sessionClosed(s)
		})
	})
}

// after passes a function to the goroutine of run after a time, unless the group was left.
func (g *Group) after(wait time.Duration, act func()) {
	time.AfterFunc(wait, func() { _ = g.enqueue(act) })
}

// LeaderWithPromise returns Leader, and guarantees that no other process becomes
// coordinator during the remaining time that it reports, which is at most the given time.
// It is for callers that act as coordinator during that time, and can't be asked to stop.
//
// The goroutine of run gives the promise, so that all its later steps respect it.
func (g *Group) LeaderWithPromise(ctx context.Context, atMost time.Duration) (Leader, error) {
	var leader Leader
	err := g.call(ctx, func() {
		if leader = g.Leader(); leader.RemainingMillis != nil {
			g.promisedUntil = max(g.promisedUntil, g.limitPromise(&leader, atMost))
		}
	})
	if err != nil {
		return Leader{}, err
	}
	return g.unlessOutdated(leader), nil
}

// RenewSession returns Leader for the application that holds this session open. Only the session that was asked to lead
// is leading. What it is promised ends earlier if it confirms that it has stopped, or ends. While it stops, it isn't
// leading, but learns by when it must have stopped.
func (g *Group) RenewSession(ctx context.Context, session string) (Leader, error) {
	var leader Leader
	err := g.try(ctx, func() error {
		s := g.app.find(session)
		if s == nil {
			return ErrNoSession
		}
		g.app.requiresSession, s.renewedAt = true, time.Now()
		if leader = g.Leader(); s != g.app.acting {
			leader = leader.following()
		}
		if leader.RemainingMillis != nil {
			s.promisedUntil = max(s.promisedUntil, g.limitPromise(&leader, math.MaxInt64))
		}
		if leader.Leading {
			g.renewed(s)
		}
		if s == g.app.acting && g.app.stopping {
			leader.RemainingMillis = g.remainingToStop()
		}
		return nil
	})
	if err != nil {
		return Leader{}, err
	}
	return g.unlessOutdated(leader), nil
}

// remainingToStop returns the rest of the lease or of the drain timeout in milliseconds, whichever is shorter, or nil
// without a lease.
func (g *Group) remainingToStop() *int64 {
	until := g.record.Status.Until
	if until == election.Never {
		return nil
	}
	return new(max(0, g.cfg.Clock.Until(min(until, g.app.stopBy)).Milliseconds()))
}

// limitPromise limits the remaining time of an answer, and returns when it is over. A
// hand-over waits for the drain timeout only, so no promise is longer than that.
func (g *Group) limitPromise(leader *Leader, atMost time.Duration) election.Tick {
	drainTimeout := g.cfg.Group.Timing.DrainTimeout // not that in force, see reconfigure
	millis := min(*leader.RemainingMillis, drainTimeout.Milliseconds(), atMost.Milliseconds())
	leader.RemainingMillis = &millis
	return g.cfg.Clock.Now() + election.Tick(millis)*election.Tick(time.Millisecond)
}

// promiseRemaining returns how long a caller of LeaderWithPromise may still act.
func (g *Group) promiseRemaining() time.Duration { return g.cfg.Clock.Until(g.promisedUntil) }

// longestPromise returns how long anything may still act as coordinator without an answer.
func (g *Group) longestPromise() time.Duration {
	if s := g.app.acting; s != nil {
		return max(g.promiseRemaining(), g.cfg.Clock.Until(s.promisedUntil))
	}
	return g.promiseRemaining()
}
