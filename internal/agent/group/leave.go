package group

import (
	"context"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// StepDown hands the office to a member, or to the best one if to is empty, and
// returns when that holds it.
func (g *Group) StepDown(ctx context.Context, to string) (Leader, error) {
	watcher := g.Watch("")
	if err := g.offer(ctx, to); err != nil {
		return g.Leader(), err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.Drain()+time.Second, ErrNotTaken)
	defer cancel()
	for {
		change, err := watcher.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return g.Leader(), context.Cause(ctx)
		case err != nil:
			return g.Leader(), err
		case change.Leader.Coordinator != "" && change.Leader.Coordinator != g.cfg.Self:
			return change.Leader, nil
		}
	}
}

// offer begins a hand-over.
func (g *Group) offer(ctx context.Context, to string) error {
	var refused error
	err := g.ask(ctx, func() {
		id, known := g.names.ids[to]
		switch {
		case g.app.term == 0 || g.app.stopping:
			refused = ErrNotLeading
			return
		case !known:
			refused = fmt.Errorf("%w: %q is not a member", ErrNobody, to)
			return
		}
		told := len(g.out.Events)
		g.step(election.Input{Kind: election.StepDown, Peer: id})
		for _, e := range g.out.Events[told:] {
			if e.Kind == election.Refused {
				refused = ErrNobody
			}
		}
	})
	if err != nil {
		return err
	}
	return refused
}

// Leave ends the group's part in the election. A coordinator hands the office
// over first, if anybody can take it; if not, or if ctx ends, it gives it up.
func (g *Group) Leave(ctx context.Context) {
	if g.Leader().Leading {
		if _, err := g.StepDown(ctx, ""); err != nil {
			g.cfg.Log.Info("the office could not be handed over", "error", err)
		}
	}
	// Whatever came of that: nothing is granted to an agent that has withdrawn.
	_ = g.ask(context.WithoutCancel(ctx), func() { g.step(election.Input{Kind: election.Withdraw}) })
	select {
	case <-g.quit:
	default:
		close(g.quit)
	}
	<-g.done
}
