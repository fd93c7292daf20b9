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
	Peers   int
	Groups  int
	Seconds float64
	// Resident is the median of the agents' resident memory.
	Resident float64
	// Coordinator and Follower are CPU usages in percent of a core. Follower is the median.
	Coordinator float64
	Follower    float64
	Goals       []benchmark.Goal
}

// idlePeers is the number of peers of each idle agent.
const idlePeers = 5

// idle measures agents that receive no requests, in each number of groups.
func (r *runner) idle(ctx context.Context, report *Report) error {
	for _, groups := range r.options.groups {
		idle, err := r.idleIn(ctx, groups)
		if err != nil {
			return fmt.Errorf("idle agents in %d groups: %w", groups, err)
		}
		report.Idle = append(report.Idle, idle)
		idle.judge(report.Idle[0])
	}
	return nil
}

// judge compares the results with the goals. There are goals for one group. If first is
// of one group, there are also goals for more groups, as multiples of first.
func (i *Idle) judge(first *Idle) {
	switch {
	case i.Groups == 1:
		i.Goals = []benchmark.Goal{
			benchmark.AtMost("resident memory", "MiB", i.Resident, 8),
			benchmark.AtMost("CPU of a follower", "% of a core", i.Follower, 0.06),
			benchmark.AtMost("CPU of the coordinator", "% of a core", i.Coordinator, 0.2),
		}
	case first.Groups == 1:
		i.Goals = []benchmark.Goal{
			benchmark.AtMost("CPU of a follower", "times that of one group", i.Follower/first.Follower, 1.3),
			benchmark.AtMost("CPU of the coordinator", "times that of one group", i.Coordinator/first.Coordinator, 1.3),
		}
	}
}

// idleIn measures agents that are members of several groups, all with the same coordinator.
func (r *runner) idleIn(ctx context.Context, groups int) (idle *Idle, err error) {
	plan, err := r.plan("Majority", idlePeers+1)
	if err != nil {
		return nil, err
	}
	plan.Group.Preemption = agentcluster.Preemption{Policy: "Always"}
	for i := range groups - 1 {
		further := plan.Group
		further.Name = fmt.Sprintf("group-%d", i+2)
		plan.Further = append(plan.Further, further)
	}
	h, err := newHarness(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.cluster.Close()) }()
	if err := h.settleAll(ctx); err != nil {
		return nil, err
	}
	idle = &Idle{Peers: idlePeers, Groups: groups}
	r.printf("measuring idle agents in %d groups for %s", groups, r.options.idle)
	return idle, idle.observe(ctx, h, r.options.idle)
}

// settleAll waits until the agent with the highest priority is coordinator of all groups.
func (h *harness) settleAll(ctx context.Context) error {
	names := h.cluster.Names()
	h.coordinator = names[len(names)-1]
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for _, group := range h.cluster.Groups() {
		if err := agentcluster.Await(ctx, func(ctx context.Context) error {
			coordinator, err := h.cluster.In(group).AwaitCoordinator(ctx)
			if err == nil && coordinator != h.coordinator {
				err = fmt.Errorf("%s is coordinator of group %s, want %s", coordinator, group, h.coordinator)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// observe fills in what the agents of h use in a period.
func (i *Idle) observe(ctx context.Context, h *harness, period time.Duration) error {
	before, err := usage(h.cluster)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := benchmark.Wait(ctx, period); err != nil {
		return err
	}
	after, err := usage(h.cluster)
	if err != nil {
		return err
	}
	elapsed := time.Since(begun)
	i.Seconds = elapsed.Seconds()
	var resident, followers []float64
	for name, used := range after {
		share := 100 * float64(used.CPU-before[name].CPU) / float64(elapsed)
		resident = append(resident, benchmark.MiB(used.Resident))
		if name == h.coordinator {
			i.Coordinator = share
		} else {
			followers = append(followers, share)
		}
	}
	slices.Sort(resident)
	slices.Sort(followers)
	i.Resident, i.Follower = benchmark.Percentile(resident, 50), benchmark.Percentile(followers, 50)
	return nil
}

// peak returns the highest memory usage so far of any agent, in MiB.
func peak(c *agentcluster.Cluster) (float64, error) {
	all, err := usage(c)
	highest := int64(0)
	for _, used := range all {
		highest = max(highest, used.Peak)
	}
	return benchmark.MiB(highest), err
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
