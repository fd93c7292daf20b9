package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// handOverMax is how long a hand-over takes at most, without the application.
const handOverMax = time.Second

// StepDown hands the office to a member, or to the best one if to is empty, and
// returns when that holds it.
func (g *Group) StepDown(ctx context.Context, to string) (Leader, error) {
	watcher := g.Watch("")
	if err := g.offer(ctx, to); err != nil {
		return g.Leader(), err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.DrainTimeout()+handOverMax, ErrHandOverTimeout)
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

// errStopping: it is being handed over already.
var errStopping = fmt.Errorf("%w any more: it hands the office over", ErrNotLeading)

// offer begins a hand-over.
func (g *Group) offer(ctx context.Context, to string) error {
	var refused error
	if err := g.ask(ctx, func() { refused = g.stepDown(to) }); err != nil {
		return err
	}
	return refused
}

func (g *Group) stepDown(to string) error {
	id, known := g.names.ids[to]
	switch {
	case g.app.term == 0:
		return ErrNotLeading
	case g.app.stopping:
		return errStopping
	case !known:
		return fmt.Errorf("%w: %q is not a member", ErrNoSuccessor, to)
	}
	told := len(g.out.Events)
	g.step(election.Input{Kind: election.StepDown, Peer: id})
	for _, e := range g.out.Events[told:] {
		if e.Kind == election.Refused {
			return ErrNoSuccessor
		}
	}
	return nil
}

// Leave ends the group's part in the election. A coordinator hands the office
// over first, and waits a moment for the other one, whom it may have to grant.
// If nobody can take it, its application is told to stop all the same. If ctx
// ends, the office is given up without waiting for anything.
func (g *Group) Leave(ctx context.Context) {
	watcher := g.Watch("")
	drained, cancel := context.WithTimeout(ctx, g.DrainTimeout()+handOverMax)
	defer cancel()
	err := g.retire(drained)
	g.await(drained, watcher, func(l Leader) bool { return l.Coordinator != g.cfg.Self })
	if err == nil || errors.Is(err, errStopping) {
		taken, cancel := context.WithTimeout(ctx, g.cfg.Group.Timing.SuspicionTimeout)
		defer cancel()
		g.await(taken, watcher, func(l Leader) bool { return l.Coordinator != "" && l.Coordinator != g.cfg.Self })
	}
	// Whatever came of that: nothing is granted to an agent that has withdrawn.
	_ = g.ask(context.WithoutCancel(ctx), g.withdraw)
	g.leaving.Do(func() { close(g.quit) })
	<-g.done
}

// retire sees to it that this process doesn't lead again, and hands the office over
// if it has it. If nobody can take that, it is given up.
func (g *Group) retire(ctx context.Context) error {
	var refused error
	err := g.ask(ctx, func() {
		g.app.leaving = true
		if refused = g.stepDown(""); errors.Is(refused, ErrNoSuccessor) {
			g.giveUp()
		} else {
			g.reconsider()
		}
	})
	if err != nil {
		return err
	}
	return refused
}

// await waits until what is published is as wanted, or ctx ends.
func (g *Group) await(ctx context.Context, watcher *Watcher, wanted func(Leader) bool) {
	for !wanted(g.Leader()) {
		if _, err := watcher.Next(ctx); err != nil {
			return
		}
	}
}
