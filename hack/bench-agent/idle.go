package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// Idle is the resource usage of agents while nothing happens.
type Idle struct {
	Peers   int     `json:"peers"`
	Seconds float64 `json:"seconds"`
	// Heartbeat is the interval of heartbeats in milliseconds, if the timing adapts.
	Heartbeat float64 `json:"heartbeatMillis,omitempty"`
	// Resident is the median of the agents' resident memory.
	Resident float64 `json:"residentMiB"`
	// Coordinator and Follower are CPU usages in percent of a core. Follower is the
	// median.
	Coordinator float64          `json:"coordinatorPercent"`
	Follower    float64          `json:"followerPercent"`
	Goals       []benchmark.Goal `json:"goals"`
}

// idlePeers is the number of peers of each idle agent.
const idlePeers = 5

// measureIdle measures agents with default timing that receive no requests.
func measureIdle(ctx context.Context, plan agentcluster.Options, period time.Duration) (*Idle, error) {
	plan.Agents = idlePeers + 1
	c, err := agentcluster.New(ctx, plan)
	if err != nil {
		return nil, err
	}
	shortest := time.Duration(0)
	if timing := plan.Group.Timing; timing != nil {
		shortest = time.Duration(timing.MinHeartbeatMillis) * time.Millisecond
	}
	idle, err := observeIdle(ctx, c, period, shortest)
	return idle, errors.Join(err, c.Close())
}

func observeIdle(ctx context.Context, c *agentcluster.Cluster, period, shortest time.Duration) (*Idle, error) {
	if err := c.Start(); err != nil {
		return nil, err
	}
	h := &harness{cluster: c, observer: newObserver(c)}
	if err := h.settle(ctx); err != nil {
		return nil, err
	}
	idle := &Idle{Peers: idlePeers}
	if shortest > 0 {
		interval, err := h.awaitCalm(ctx, shortest)
		if err != nil {
			return nil, err
		}
		idle.Heartbeat = benchmark.Millis(interval)
	}
	before, err := usage(c)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := benchmark.Wait(ctx, period); err != nil {
		return nil, err
	}
	after, err := usage(c)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(begun)
	var resident, followers []float64
	idle.Seconds = elapsed.Seconds()
	for name, used := range after {
		share := 100 * float64(used.CPU-before[name].CPU) / float64(elapsed)
		resident = append(resident, benchmark.MiB(used.Resident))
		if name == h.coordinator {
			idle.Coordinator = share
		} else {
			followers = append(followers, share)
		}
	}
	slices.Sort(resident)
	slices.Sort(followers)
	idle.Resident, idle.Follower = benchmark.Percentile(resident, 50), benchmark.Percentile(followers, 50)
	if shortest > 0 {
		return idle, nil // The goals are those of the default timing.
	}
	idle.Goals = []benchmark.Goal{
		benchmark.AtMost("resident memory", "MiB", idle.Resident, 15),
		benchmark.AtMost("CPU of a follower", "% of a core", idle.Follower, 0.1),
		benchmark.AtMost("CPU of the coordinator", "% of a core", idle.Coordinator, 0.1),
	}
	return idle, nil
}

func usage(c *agentcluster.Cluster) (map[string]benchmark.Usage, error) {
	all := map[string]benchmark.Usage{}
	for _, name := range c.Names() {
		used, err := benchmark.UsageOf(c.Agent(name).PID())
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", name, err)
		}
		all[name] = used
	}
	return all, nil
}
