package group

import (
	"context"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// snapshot is what the group knew after its last step.
type snapshot struct {
	leader Leader
	until  election.Tick
}

// publish shows what the Machine knows now.
func (g *Group) publish() {
	status := g.machine.Status()
	s := snapshot{until: status.Until}
	s.leader = Leader{
		Group: g.cfg.Group.Name, Self: g.cfg.Self, Coordinator: g.names.of(status.Coordinator), Term: uint64(status.Term),
	}
	if status.Coordinator != election.None {
		s.leader.Priority = uint32(g.roster.Priority(status.Coordinator))
	}
	if status.Token != 0 && !g.app.stopping {
		s.leader.Leading, s.leader.Token = true, uint64(status.Token)
	}
	if old := g.now.Load(); old != nil && *old == s {
		return
	}
	changed := s // Only this goes to the heap: most often nothing has changed.
	g.now.Store(&changed)
	g.feed.append(s.leader)
}

// LeaderWithPromise is Leader for somebody who will act on it until the time that remains has
// passed, and whom nobody can tell to stop: no successor starts before. A
// hand-over waits for the drain time, so that is all that can be promised.
//
// The group's goroutine promises: it knows of that whatever it does next.
func (g *Group) LeaderWithPromise(ctx context.Context) (Leader, error) {
	var leader Leader
	err := g.ask(ctx, func() {
		leader = g.Leader()
		if leader.RemainingMillis == nil {
			return
		}
		millis := min(*leader.RemainingMillis, g.DrainTimeout().Milliseconds())
		leader.RemainingMillis = &millis
		g.promised = max(g.promised, g.cfg.Clock.Now()+election.Tick(millis)*election.Tick(time.Millisecond))
	})
	if err != nil {
		return Leader{}, err
	}
	return g.still(leader), nil
}

// RenewSession is Leader for the application that holds this session open. Only the one
// that was told to lead does, and it will be told to stop.
func (g *Group) RenewSession(ctx context.Context, session string) (Leader, error) {
	var leader Leader
	var refused error
	err := g.ask(ctx, func() {
		s := g.app.find(session)
		if s == nil {
			refused = ErrNoSession
			return
		}
		if leader = g.Leader(); s != g.app.acting {
			leader = leader.following()
		}
	})
	switch {
	case err != nil:
		return Leader{}, err
	case refused != nil:
		return Leader{}, refused
	}
	return g.still(leader), nil
}

// still is what the group's goroutine has answered, unless that is out of date.
func (g *Group) still(leader Leader) Leader {
	if now := g.Leader(); now.Token != leader.Token {
		return now.following() // That tenure is over, or it is another session's.
	}
	return leader
}

// Leader says who leads at this moment.
func (g *Group) Leader() Leader {
	s := g.now.Load()
	leader := s.leader
	if !leader.Leading || s.until == election.Never {
		return leader
	}
	remaining := g.cfg.Clock.Until(s.until)
	if remaining <= 0 { // The Machine will notice, too, when it gets to it.
		leader.Leading, leader.Token, leader.Coordinator, leader.Priority = false, 0, "", 0
		return leader
	}
	millis := remaining.Milliseconds()
	leader.RemainingMillis = &millis
	return leader
}

// Status says all that is known.
func (g *Group) Status(ctx context.Context) (Status, error) {
	var status Status
	err := g.ask(ctx, func() {
		now := g.machine.Status()
		status = Status{
			Electing: now.Electing, Algorithm: g.cfg.Group.Algorithm, Safety: g.cfg.Group.Safety.Mode.String(),
			Version: g.list.Version,
		}
		addresses := map[string]string{}
		for _, m := range g.list.Members {
			addresses[m.Name] = m.Address
		}
		for _, row := range g.machine.Rows(nil) {
			name := g.names.of(row.ID)
			status.Processes = append(status.Processes, Process{
				Name: name, Priority: uint32(row.Priority), Status: row.Status.String(), Address: addresses[name],
				Connected: name == g.cfg.Self || g.cfg.Transport.Connected(name),
			})
		}
	})
	if err != nil {
		return Status{}, err // It may still be written.
	}
	status.Leader = g.Leader()
	return status, nil
}
