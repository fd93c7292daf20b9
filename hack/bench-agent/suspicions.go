package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// Suspicions counts how often agents were suspected to have crashed although all were
// running, while the machine was busy.
type Suspicions struct {
	Seconds float64
	Agents  int
	// Busy is the number of processes that kept a core busy, with the agents' niceness.
	Busy int
	// Counters are the increases of the agents' counters, added up over all agents.
	Counters map[string]float64
	// Terms is the number of terms that began.
	Terms uint64
	// Heartbeat is the interval of heartbeats at the end, in milliseconds. MinHeartbeat is
	// the shortest one, 0 if the timing didn't adapt.
	Heartbeat    float64
	MinHeartbeat int
	Goals        []benchmark.Goal
}

const (
	busyCommand = "busy"
	suspicions  = "conclave_suspicions_total"
)

// counted are the metrics that are reported.
var counted = []string{suspicions, "conclave_false_suspicions_total", "conclave_elections_total"}

// suspicions counts in a group with the default timing and, at the same time, in one whose
// timing adapts.
func (r *runner) suspicions(ctx context.Context, report *Report) (err error) {
	timings := []*agentcluster.Timing{nil}
	if r.options.minHeartbeat > 0 {
		timings = append(timings, r.options.adaptiveTiming())
	}
	var counts []*count
	defer func() {
		for _, c := range counts {
			err = errors.Join(err, c.cluster.Close())
		}
	}()
	for _, timing := range timings {
		h, err := r.calmGroup(ctx, timing)
		if err != nil {
			return err
		}
		counts = append(counts, &count{harness: h, timing: timing})
	}
	for _, c := range counts {
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	if err := r.waitUnderLoad(ctx); err != nil {
		return err
	}
	for _, c := range counts {
		s, err := c.end(ctx)
		if err != nil {
			return err
		}
		s.Busy = r.options.busy
		report.Suspicions = append(report.Suspicions, s)
	}
	return nil
}

// suspectingAgents is the size of the groups in which suspicions are counted.
const suspectingAgents = 5

// calmGroup starts a group. If its timing adapts, it waits until that is the shortest, so
// that the load comes at the worst moment.
func (r *runner) calmGroup(ctx context.Context, timing *agentcluster.Timing) (*harness, error) {
	plan, err := r.plan("Majority", suspectingAgents)
	if err != nil {
		return nil, err
	}
	plan.Group.Timing = timing
	h, err := newHarness(ctx, plan)
	if err != nil || timing == nil {
		return h, err
	}
	if _, err := h.awaitCalm(ctx, time.Duration(timing.MinHeartbeatMillis)*time.Millisecond); err != nil {
		return nil, errors.Join(err, h.cluster.Close())
	}
	return h, nil
}

// waitUnderLoad keeps cores busy for the duration of the measurement.
func (r *runner) waitUnderLoad(ctx context.Context) error {
	r.printf("counting suspicions for %s with %d busy processes", r.options.suspicions, r.options.busy)
	var all benchmark.Children
	defer all.Kill()
	for range r.options.busy {
		busy, err := benchmark.StartChild(ctx, busyCommand)
		if err != nil {
			return err
		}
		all = append(all, busy)
	}
	return benchmark.Wait(ctx, r.options.suspicions)
}

// count is a group, and its state before a load.
type count struct {
	*harness

	timing   *agentcluster.Timing
	begun    time.Time
	counters map[string]float64
	term     uint64
}

func (c *count) begin(ctx context.Context) (err error) {
	if c.counters, err = c.sums(ctx); err != nil {
		return err
	}
	leader, err := c.cluster.Leader(ctx, c.coordinator)
	c.term, c.begun = leader.Term, time.Now()
	return err
}

func (c *count) end(ctx context.Context) (*Suspicions, error) {
	s := &Suspicions{Seconds: time.Since(c.begun).Seconds(), Agents: len(c.cluster.Names())}
	if c.timing != nil {
		s.MinHeartbeat = c.timing.MinHeartbeatMillis
	}
	var err error
	if s.Counters, err = c.sums(ctx); err != nil {
		return nil, err
	}
	for name := range s.Counters {
		s.Counters[name] -= c.counters[name]
	}
	leader, err := c.cluster.Leader(ctx, c.coordinator)
	if err != nil {
		return nil, err
	}
	s.Terms = leader.Term - c.term
	interval, err := c.heartbeat(ctx)
	if err != nil {
		return nil, err
	}
	s.Heartbeat = benchmark.Millis(interval)
	s.Goals = []benchmark.Goal{
		benchmark.AtMost("false changes of the coordinator", "terms", float64(s.Terms), 0),
		benchmark.AtMost("false suspicions", "suspicions", s.Counters[suspicions], 0),
	}
	return s, nil
}

// sums returns the values of the counters, added up over all agents.
func (c *count) sums(ctx context.Context) (map[string]float64, error) {
	sums := map[string]float64{}
	for _, agent := range c.cluster.Names() {
		for _, counter := range counted {
			value, err := c.cluster.Metric(ctx, agent, counter)
			if err != nil {
				return nil, err
			}
			sums[counter] += value
		}
	}
	return sums, nil
}

func newBusyCommand() *cobra.Command {
	return &cobra.Command{
		Use: busyCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			for command.Context().Err() == nil {
				continue
			}
			return nil
		},
	}
}
