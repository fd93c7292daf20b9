package group

import (
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// measureEvery is how often T follows the measured delays.
const measureEvery = 5 * time.Second

// waits are those of an election in which a peer answers within T = reply.
func waits(reply time.Duration) election.Timing {
	t := election.Tick(reply)
	return election.Timing{Reply: t, Takeover: 3 * t, Hop: t}
}

// measure keeps T right: 2*Ttrans + Tproc (seed 004), where the kernel measures
// 2*Ttrans on every connection, and the configured T is all of it where there
// are no delays. It is doubled, since an election that gives up too early does
// more harm than one that waits.
func (g *Group) measure() {
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	reply := g.cfg.Group.Timing.ReplyTimeout
	for {
		select {
		case <-ticker.C:
		case <-g.quit:
			return
		}
		if next := g.reply(); next > reply+reply/4 || next < reply-reply/4 { // Small changes don't matter.
			reply = next
			timing := waits(reply)
			_ = g.do(func() { g.step(election.Input{Kind: election.Retime, Timing: &timing}) }) // None of a group that was left.
		}
	}
}

// reply is T by the slowest peer. Who is slower than the patience is suspected anyway.
func (g *Group) reply() time.Duration {
	timing := g.cfg.Group.Timing
	slowest := time.Duration(0)
	for _, name := range *g.peers.Load() {
		slowest = max(slowest, g.cfg.Transport.RoundTrip(name))
	}
	return min(timing.ReplyTimeout+2*slowest, max(timing.ReplyTimeout, timing.SuspicionTimeout))
}
