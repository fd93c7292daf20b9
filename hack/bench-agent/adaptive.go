package main

import (
	"context"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// calmTimeout bounds the wait until heartbeats have the shortest interval. On a busy
// machine they may never have. Then the measurement begins nevertheless.
const calmTimeout = 40 * time.Second

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
		now, err := h.heartbeat(ctx)
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

// heartbeat returns the interval of heartbeats that the coordinator reports.
func (h *harness) heartbeat(ctx context.Context) (time.Duration, error) {
	seconds, err := h.cluster.Metric(ctx, h.coordinator, "conclave_heartbeat_seconds")
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond), err
}
