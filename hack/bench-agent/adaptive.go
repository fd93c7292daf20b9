package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// calmTimeout bounds the wait until heartbeats have the shortest interval. On a busy
// machine they may never have. Then the coordinator is stopped nevertheless.
const calmTimeout = 40 * time.Second

// adaptiveStops measures stops in a group of its own, whose timing adapts. It reports
// also the interval of heartbeats, in milliseconds, with which each coordinator was
// stopped.
func (r *runner) adaptiveStops(ctx context.Context, group *Group) (err error) {
	plan, err := r.plan(group.Mode, group.Agents)
	if err != nil {
		return err
	}
	plan.Group.Timing = r.options.adaptiveTiming()
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	h, err := newHarness(watched, plan, group.Mode)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, h.cluster.Close())
	}()
	var intervals []time.Duration
	group.AdaptiveStops, err = r.rounds(ctx, group, "stop with timing that adapts", r.options.stops, func(ctx context.Context) (time.Duration, error) {
		interval, err := h.awaitCalm(ctx, time.Duration(r.options.minHeartbeat)*time.Millisecond)
		if err != nil {
			return 0, err
		}
		intervals = append(intervals, interval)
		return h.stop(ctx)
	})
	group.AdaptiveHeartbeats = benchmark.NewSeries(intervals)
	return err
}

func (o *options) adaptiveTiming() *agentcluster.Timing {
	return &agentcluster.Timing{MinHeartbeatMillis: o.minHeartbeat}
}

// awaitCalm waits until the coordinator's heartbeats have the shortest interval, and
// returns their interval.
func (h *harness) awaitCalm(ctx context.Context, shortest time.Duration) (time.Duration, error) {
	if err := h.settle(ctx); err != nil {
		return 0, err
	}
	calm, cancel := context.WithTimeout(ctx, calmTimeout)
	defer cancel()
	interval := time.Duration(0)
	err := agentcluster.Await(calm, func(ctx context.Context) error {
		now, err := heartbeat(ctx, h.cluster, h.coordinator)
		if err != nil {
			return err
		}
		if interval = now; interval > shortest {
			return fmt.Errorf("heartbeats have an interval of %s", interval)
		}
		return nil
	})
	if interval == 0 {
		return 0, err
	}
	return interval, ctx.Err()
}

// heartbeat returns the interval of heartbeats that an agent reports.
func heartbeat(ctx context.Context, c *agentcluster.Cluster, name string) (time.Duration, error) {
	metrics, err := c.Metrics(ctx, name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(metrics) {
		sample, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(sample, "conclave_heartbeat_seconds{") {
			seconds, err := strconv.ParseFloat(value, 64)
			return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond), err
		}
	}
	return 0, fmt.Errorf("agent %s has no metric conclave_heartbeat_seconds", name)
}
