package group

import (
	"context"
	"math"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

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

// RenewSession returns Leader for the application that holds this session open. Only
// the session that was asked to lead is leading. What it is promised ends earlier if it
// confirms that it has stopped, or ends. While it stops, it isn't leading, but learns by when
// it must have stopped.
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

// remainingToStop returns the rest of the lease or of the drain timeout in milliseconds, whichever is shorter, or nil without a lease.
func (g *Group) remainingToStop() *int64 {
	until := g.machine.Status().Until
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
