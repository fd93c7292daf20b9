package group

import (
	"context"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

func officeSettings(group *config.Group) office.Settings {
	ticks := func(d time.Duration) election.Tick { return election.Tick(d) }
	timing := &group.Timing
	return office.Settings{
		Mode: group.Safety.Mode, Lease: ticks(group.Safety.Lease), UsualLease: ticks(group.Safety.UsualLease),
		Heartbeat: ticks(timing.Heartbeat), CalmPeriod: ticks(calmPeriod(timing.Heartbeat)),
		SuspicionTimeout: ticks(timing.SuspicionTimeout), Stagger: ticks(timing.Stagger),
		Policy: group.Preemption.Policy, StablePeriod: ticks(group.Preemption.Stable),
		DrainTimeout: ticks(timing.DrainTimeout),
		LongTenure:   ticks(control.LongTenure(group.Preemption.Stable)),
	}
}

// Use switches to the settings of next and to its member list. The election continues. The caller must have checked
// that only settings differ that can change (see config.Group.FixedSettings), and have stored the list and a longer
// lease (see package state).
func (g *Group) Use(ctx context.Context, next config.Group) error {
	return g.try(ctx, func() error {
		roster, err := election.RosterOf(&next.List, g.names.add)
		running := &g.cfg.Group
		if err == nil && (next.Safety != running.Safety || next.Preemption != running.Preemption ||
			next.Timing != running.Timing) {
			err = g.reconfigure(next)
		}
		if err != nil {
			return err
		}
		running.Provenance = next.Provenance
		g.useList(next.List, roster)
		g.step(election.Input{Kind: election.Adopt, Roster: roster})
		return nil
	})
}

// reconfigure switches to the settings of next. The drain timeout doesn't become shorter than a promise that was given
// while it was longer, until that promise is over: a hand-over would not wait for its end.
func (g *Group) reconfigure(next config.Group) error {
	inForce := next
	if promised := g.longestPromise(); promised > next.Timing.DrainTimeout {
		inForce.Timing.DrainTimeout = promised
		g.after(promised, g.reconfigureAgain)
	}
	settings, now := officeSettings(&inForce), g.cfg.Clock.Now()
	if err := g.machine.Reconfigure(settings, now); err != nil {
		return err
	}
	g.observe(journal.Record{Input: election.Input{Now: now}, Settings: &settings})
	running := &g.cfg.Group
	running.Safety, running.Preemption, running.Timing = next.Safety, next.Preemption, next.Timing
	if before := g.inForce.Swap(&inForce); before.Timing.DrainTimeout != inForce.Timing.DrainTimeout ||
		before.Safety.Usual() != next.Safety.Usual() {
		// An application that assumes a shorter one would give up before it has stopped.
		for _, s := range g.app.sessions {
			s.events.append(SessionEvent{Kind: SettingsChanged})
		}
	}
	g.configDigest = configDigest(*running)
	g.replyInForce = next.Timing.ReplyTimeout
	g.measureDue = now // adds the measured round trips
	inner := electionTiming(next.Timing.ReplyTimeout)
	g.step(election.Input{Kind: election.Retime, Timing: &inner})
	g.reporter.dirty = true
	return nil
}

func (g *Group) reconfigureAgain() {
	if err := g.reconfigure(g.cfg.Group); err != nil { // They were valid before.
		g.cfg.Log.Error("cannot shorten the drain timeout", "error", err)
	}
}

// measureInterval is the time between adjustments to the measured round-trip times.
const measureInterval = 5 * time.Second

// calmPeriod returns how long a coordinator measures no late renewal before it makes a lease that
// has grown shorter. It measures several heartbeats in that time.
func calmPeriod(heartbeat time.Duration) time.Duration { return max(5*time.Second, 4*heartbeat) }

// electionTiming returns the timeouts of an election in which a peer replies within
// the given time, T in the source texts.
func electionTiming(reply time.Duration) election.Timing {
	t := election.Tick(reply)
	return election.Timing{Reply: t, Takeover: 3 * t, Hop: t}
}

// adjustTiming adjusts the reply timeout T to the measured round-trip times. [ImprovedBully] defines T = 2*Ttrans +
// Tproc. The kernel measures 2*Ttrans for each connection. The configured T covers everything else. The round-trip time
// counts twice, because an election that times out early does more harm than one that waits.
//
// It is called after each input. A timer of its own would wake an idle agent more often.
func (g *Group) adjustTiming() {
	if !g.cfg.Group.Timing.Measured || g.record.Now < g.measureDue {
		return
	}
	g.measureDue = g.record.Now + election.Tick(measureInterval)
	reply := g.replyInForce
	if next := g.replyTimeout(); next > reply+reply/4 || next < reply-reply/4 { // Small changes don't matter.
		g.replyInForce = next
		timing := electionTiming(next)
		g.step(election.Input{Kind: election.Retime, Timing: &timing})
	}
}

// replyTimeout returns T for the slowest peer, limited to the suspicion timeout: a
// peer that is slower than that is suspected anyway.
func (g *Group) replyTimeout() time.Duration {
	timing := g.cfg.Group.Timing
	slowest := time.Duration(0)
	for _, name := range g.peers {
		slowest = max(slowest, g.cfg.Transport.RoundTrip(name))
	}
	return min(timing.ReplyTimeout+2*slowest, max(timing.ReplyTimeout, timing.SuspicionTimeout))
}

// recovery determines when the machine recovers, which happens once: when all other members are connected. For those
// that can't be reached it waits no longer than the reply timeout, beginning with the first connection.
type recovery struct {
	begun, waiting, waited bool
}

// recoverIfReachable lets the machine recover if enough members are connected. It is
// called after each change: see Refresh.
func (g *Group) recoverIfReachable() {
	r := &g.recovery
	if r.begun || !g.roster.Has(g.self) {
		return
	}
	missing := func(peer string) bool { return !g.cfg.Transport.Connected(peer) }
	switch {
	case !slices.ContainsFunc(g.peers, g.cfg.Transport.Connected):
	case r.waited || !slices.ContainsFunc(g.peers, missing):
		r.begun = true
		g.step(election.Input{Kind: election.Recover})
	case !r.waiting:
		r.waiting = true
		time.AfterFunc(g.cfg.Group.Timing.ReplyTimeout, func() {
			_ = g.enqueue(func() { r.waited = true }) // A group that was left doesn't recover.
		})
	}
}
