package group

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

func officeSettings(group *config.Group) office.Settings {
	ticks := func(d time.Duration) election.Tick { return election.Tick(d) }
	timing := &group.Timing
	return office.Settings{
		Mode: group.Safety.Mode, Lease: ticks(group.Safety.Lease), UsualLease: ticks(group.Safety.UsualLease),
		Heartbeat: ticks(timing.Heartbeat), CalmPeriod: ticks(calmPeriod(timing.Heartbeat)),
		SuspicionTimeout: ticks(timing.SuspicionTimeout), Stagger: ticks(timing.Stagger),
		Policy: group.Preemption.Policy, StablePeriod: ticks(group.Preemption.Stable), DrainTimeout: ticks(timing.DrainTimeout),
		LongTenure: ticks(control.LongTenure(group.Preemption.Stable)),
	}
}

// Reconfigure switches to the settings of next, except for the member list. The election
// continues. The caller must have checked that only settings differ that can change (see
// config.Group.FixedSettings), and have stored a longer lease (see package state).
func (g *Group) Reconfigure(ctx context.Context, next config.Group) error {
	return g.try(ctx, func() error { return g.reconfigure(next) })
}

// reconfigure switches to the settings of next. The drain timeout doesn't become shorter than
// a promise that was given while it was longer, until that promise is over: a hand-over would
// not wait for its end.
func (g *Group) reconfigure(next config.Group) error {
	timing := next.Timing
	if promised := g.longestPromise(); promised > timing.DrainTimeout {
		timing.DrainTimeout = promised
		g.after(promised, g.reconfigureAgain)
	}
	settings, now := officeSettings(&config.Group{Safety: next.Safety, Preemption: next.Preemption, Timing: timing}), g.cfg.Clock.Now()
	if err := g.machine.Reconfigure(settings, now); err != nil {
		return err
	}
	g.record(&election.Input{Now: now}, &settings, &election.Output{})
	running := &g.cfg.Group
	running.Safety, running.Preemption, running.Timing = next.Safety, next.Preemption, next.Timing
	lease := next.Safety.Usual()
	leaseBefore := time.Duration(g.lease.Swap(int64(lease)))
	if before := g.timing.Swap(&timing); before.DrainTimeout != timing.DrainTimeout || leaseBefore != lease {
		// An application that assumes a shorter one would give up before it has stopped.
		for _, s := range g.app.sessions {
			s.push(SessionEvent{Kind: SettingsChanged})
		}
	}
	g.configDigest = configDigest(*running)
	g.replyInForce = timing.ReplyTimeout
	g.measureDue = now // adds the measured round trips
	inner := electionTiming(timing.ReplyTimeout)
	g.step(election.Input{Kind: election.Retime, Timing: &inner})
	g.reporter.dirty = true
	return nil
}

func (g *Group) reconfigureAgain() {
	if err := g.reconfigure(g.cfg.Group); err != nil { // They were valid before.
		g.cfg.Log.Error("cannot shorten the drain timeout", "error", err)
	}
}
