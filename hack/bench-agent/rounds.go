package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/hack/internal/failover"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// roundTimeout is the time after which a round has failed.
const roundTimeout = 10 * time.Second

// settleTimeout bounds the time until all agents are connected and agree, at the start
// and after a round. A group of 100 agents needs about 10,000 handshakes.
const settleTimeout = 5 * time.Minute

// harness runs the rounds on one group of agents.
type harness struct {
	cluster *agentcluster.Cluster
	// coordinator is the process on which all agents agree.
	coordinator string
	// grantDelay is the time for which a member grants nothing after its start. An
	// agent doesn't report the end of that time.
	grantDelay time.Duration
}

func newHarness(ctx context.Context, plan agentcluster.Options) (*harness, error) {
	c, err := agentcluster.New(ctx, plan)
	if err != nil {
		return nil, err
	}
	h := &harness{cluster: c}
	if plan.Group.Safety.Mode != "Available" {
		h.grantDelay = time.Duration(plan.Group.Safety.LeaseMillis) * time.Millisecond
	}
	if err = c.Start(); err == nil {
		err = h.settle(ctx)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs(logLines))
		return nil, errors.Join(err, c.Close())
	}
	return h, nil
}

// settle returns when all agents are connected and follow the same coordinator. Every
// round starts in that state, so that its fault hits the process that leads.
//
// A restarted agent learns from another one who is coordinator, and follows it from the
// next heartbeat on. If the coordinator is killed before, that agent doesn't count it as
// lost, so the others wait for it: 50 ms longer, in one of ten rounds that begin so soon.
func (h *harness) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := h.cluster.AwaitConnected(ctx); err != nil {
		return err
	}
	for h.coordinator = ""; ; {
		coordinator, err := h.cluster.AwaitCoordinator(ctx)
		if err != nil {
			return err
		}
		if coordinator == h.coordinator { // It has led for a heartbeat.
			return nil
		}
		h.coordinator = coordinator
		if err := benchmark.Wait(ctx, defaultHeartbeat); err != nil {
			return err
		}
	}
}

// kill kills the coordinator's process. It returns the time from just before that until the last survivor has announced
// the same new coordinator as the others. Then it restarts the agent.
func (h *harness) kill(ctx context.Context) (time.Duration, error) {
	victim := h.cluster.Agent(h.coordinator)
	took, failed := h.failover(ctx, victim.Kill)
	return took, errors.Join(failed, h.restart(ctx, victim))
}

// restart starts the process that was coordinator again, and waits until it votes.
func (h *harness) restart(ctx context.Context, victim *agentcluster.Agent) error {
	if err := h.cluster.Restart(victim.Name); err != nil {
		return err
	}
	// A process starts to measure its grant delay shortly after it was started.
	const margin = 100 * time.Millisecond
	return benchmark.Wait(ctx, h.grantDelay+margin)
}

// stop pauses the coordinator's process with SIGSTOP and measures like kill. The process doesn't continue, like one on
// a node that has failed.
func (h *harness) stop(ctx context.Context) (time.Duration, error) {
	victim := h.cluster.Agent(h.coordinator)
	took, failed := h.failover(ctx, victim.Stop)
	if _, err := victim.Kill(); err != nil {
		return 0, err
	}
	return took, errors.Join(failed, h.restart(ctx, victim))
}

func (h *harness) failover(ctx context.Context, inject func() (time.Time, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	_, took, err := failover.Measure(ctx, h.cluster, h.coordinator, inject)
	return took, err
}

// handOver makes the coordinator hand over its office. It returns the time during which no process led: from the former
// coordinator's event that it no longer leads until the next coordinator's event that it leads.
func (h *harness) handOver(ctx context.Context) (time.Duration, error) {
	former := h.coordinator
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	events, err := failover.Watch(ctx, h.cluster, h.cluster.Names())
	if err != nil {
		return 0, err
	}
	// A process that has stepped down is ineligible for a while. Until another one is
	// ready, the coordinator refuses to step down.
	var refused error
	err = agentcluster.Await(ctx, func(ctx context.Context) error {
		_, refused = h.cluster.StepDown(ctx, former, "")
		if errors.Is(refused, agentcluster.ErrRefused) {
			return refused
		}
		return nil
	})
	if err = errors.Join(err, refused); err != nil {
		return 0, err
	}
	var resigned, acquired time.Time
	for resigned.IsZero() || acquired.IsZero() {
		select {
		case event := <-events:
			if event.Leader.Self == former && !event.Leader.Leading && resigned.IsZero() {
				resigned = event.At
			}
			if event.Leader.Self != former && event.Leader.Leading && acquired.IsZero() {
				acquired = event.At
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("no process led after %s stepped down: %w", former, ctx.Err())
		}
	}
	return acquired.Sub(resigned), nil
}
