package group

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// officeSettings returns the settings for the machine.
func officeSettings(group *config.Group) office.Settings {
	ticks := func(d time.Duration) election.Tick { return election.Tick(d) }
	timing := &group.Timing
	return office.Settings{
		Mode: group.Safety.Mode, Lease: ticks(group.Safety.Lease),
		Heartbeat: ticks(timing.Heartbeat), MinHeartbeat: ticks(timing.MinHeartbeat), CalmPeriod: ticks(calmPeriod(timing.Heartbeat)),
		SuspicionTimeout: ticks(timing.SuspicionTimeout), Stagger: ticks(timing.Stagger),
		Policy: group.Preemption.Policy, StablePeriod: ticks(group.Preemption.Stable), DrainTimeout: ticks(timing.DrainTimeout),
	}
}

// Reconfigure switches to the settings of next, except for the member list. The election
// continues. The caller must have checked that only settings differ that can change (see
// config.Group.FixedSettings), and have stored a longer lease (see package state).
func (g *Group) Reconfigure(ctx context.Context, next config.Group) error {
	var failed error
	err := g.call(ctx, func() { failed = g.reconfigure(next) })
	if err != nil {
		return err
	}
	return failed
}

func (g *Group) reconfigure(next config.Group) error {
	settings, now := officeSettings(&next), g.cfg.Clock.Now()
	if err := g.machine.Reconfigure(settings, now); err != nil {
		return err
	}
	g.recordSettings(settings, now)
	running := &g.cfg.Group
	running.Safety, running.Preemption, running.Timing = next.Safety, next.Preemption, next.Timing
	timing := next.Timing
	g.timing.Store(&timing)
	g.configDigest = configDigest(*running, running.Safety.Lease)
	g.replyInForce = timing.ReplyTimeout
	g.measureDue = now // adds the measured round trips
	inner := electionTiming(timing.ReplyTimeout)
	g.step(election.Input{Kind: election.Retime, Timing: &inner})
	g.reporter.dirty = true
	return nil
}
