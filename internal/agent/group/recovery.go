package group

import (
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// recovery determines when the machine recovers, which happens once: when all other
// members are connected. For those that can't be reached it waits no longer than the
// reply timeout, beginning with the first connection.
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
	peers := *g.peers.Load()
	missing := func(peer string) bool { return !g.cfg.Transport.Connected(peer) }
	switch {
	case !slices.ContainsFunc(peers, g.cfg.Transport.Connected):
	case r.waited || !slices.ContainsFunc(peers, missing):
		r.begun = true
		g.step(election.Input{Kind: election.Recover})
	case !r.waiting:
		r.waiting = true
		time.AfterFunc(g.cfg.Group.Timing.ReplyTimeout, func() {
			_ = g.enqueue(func() { r.waited = true }) // A group that was left doesn't recover.
		})
	}
}
