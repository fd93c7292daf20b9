package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// limit is how long a round may take before it has failed.
const limit = 10 * time.Second

// rest is how long the agents may take to be all well, at first and after a round:
// a hundred make ten thousand handshakes.
const rest = 5 * time.Minute

// bench is one group of agents while it is measured.
type bench struct {
	troupe   *agentcluster.Cluster
	audience *audience
	// coordinator is on whom all agree.
	coordinator string
	// silence is how long a member grants nothing after its start: nothing tells
	// from outside that it is over.
	silence time.Duration
}

func newBench(ctx context.Context, plan agentcluster.Options, mode string) (*bench, error) {
	t, err := agentcluster.New(ctx, plan)
	if err != nil {
		return nil, err
	}
	b := &bench{troupe: t, audience: newAudience(t)}
	if mode != "Available" {
		b.silence = defaultLease * time.Millisecond
	}
	if err = t.Start(); err == nil {
		err = b.audience.attend(ctx, t.Names()...)
	}
	if err == nil {
		err = b.settle(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s%w", err, t.Logs(5), t.Close())
	}
	return b, nil
}

// settle returns when all agents agree on a coordinator and are connected. Every
// round starts from that, so that it is the coordinator whom it befalls.
func (b *bench) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	if err := b.troupe.AwaitConnected(ctx); err != nil {
		return err
	}
	coordinator, err := b.troupe.AwaitCoordinator(ctx)
	if err != nil {
		return err
	}
	b.coordinator = coordinator
	b.audience.begin()
	return nil
}

// kill kills the coordinator and measures from the moment right before, until
// the last of the survivors has announced the same new coordinator as the
// others. Then it brings the victim back.
func (b *bench) kill(ctx context.Context) (time.Duration, error) {
	if err := b.settle(ctx); err != nil {
		return 0, err
	}
	victim := b.coordinator
	moment, err := b.troupe.Agent(victim).Kill()
	if err != nil {
		return 0, err
	}
	took, failed := b.awaitSuccessor(ctx, victim, moment)
	if err := b.troupe.Restart(victim); err != nil {
		return 0, err
	}
	restarted := time.Now()
	if err := b.audience.attend(ctx, victim); err != nil {
		return 0, err
	}
	// A process takes a moment to start counting.
	const margin = 100 * time.Millisecond
	if err := benchmark.Wait(ctx, b.silence+margin-time.Since(restarted)); err != nil {
		return 0, err
	}
	return took, failed
}

// stop stops the coordinator's process and measures like kill.
func (b *bench) stop(ctx context.Context) (time.Duration, error) {
	if err := b.settle(ctx); err != nil {
		return 0, err
	}
	victim := b.coordinator
	moment, err := b.troupe.Agent(victim).Stop()
	if err != nil {
		return 0, err
	}
	took, failed := b.awaitSuccessor(ctx, victim, moment)
	if err := b.troupe.Agent(victim).Continue(); err != nil {
		return 0, err
	}
	return took, failed
}

// lateError is a round that took too long. It is a result like any other, and
// the next round is tried.
type lateError struct{ what string }

func (e lateError) Error() string { return e.what }

func (b *bench) awaitSuccessor(ctx context.Context, victim string, moment time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var known time.Time
	err := b.audience.await(ctx, func(last map[string]agentcluster.Observation, _ []agentcluster.Observation) bool {
		successor := ""
		known = moment
		for _, name := range b.troupe.Names() {
			if name == victim {
				continue
			}
			seen := last[name]
			if successor == "" {
				successor = seen.Leader.Coordinator
			}
			if successor == "" || successor == victim || seen.Leader.Coordinator != successor {
				return false
			}
			if seen.At.After(known) {
				known = seen.At
			}
		}
		return true
	})
	if err != nil {
		return 0, lateError{fmt.Sprintf("%s after %s is gone, the survivors don't know the next:%s", limit, victim, b.audience.describe())}
	}
	return known.Sub(moment), nil
}

// handOver lets the coordinator step down, and measures from the moment when it
// announced that it no longer leads until the next announced that it does.
func (b *bench) handOver(ctx context.Context) (time.Duration, error) {
	if err := b.settle(ctx); err != nil {
		return 0, err
	}
	former := b.coordinator
	asked, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Whoever stepped down a moment ago stays away for a while: so it may take a moment until there is somebody who can.
	var refused error
	err := agentcluster.Await(asked, func(ctx context.Context) error {
		_, refused = b.troupe.StepDown(ctx, former, "")
		if errors.Is(refused, agentcluster.ErrRefused) {
			return refused
		}
		return nil
	})
	if err = errors.Join(err, refused); err != nil {
		return 0, lateError{err.Error()}
	}
	var left, taken time.Time
	err = b.audience.await(asked, func(_ map[string]agentcluster.Observation, since []agentcluster.Observation) bool {
		for _, seen := range since {
			if seen.Leader.Self == former && !seen.Leader.Leading && left.IsZero() {
				left = seen.At
			}
			if seen.Leader.Self != former && seen.Leader.Leading && taken.IsZero() {
				taken = seen.At
			}
		}
		return !left.IsZero() && !taken.IsZero()
	})
	if err != nil {
		return 0, lateError{fmt.Sprintf("%s after %s stepped down, nobody leads:%s", limit, former, b.audience.describe())}
	}
	return taken.Sub(left), nil
}
