package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/agent/group"
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
	// Changes is the number of events in which an agent announced another coordinator
	// or term.
	Changes int
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

func (s *Suspicions) names() []string { return slices.Sorted(maps.Keys(s.Counters)) }

// suspicions counts in a group with the default timing and, at the same time, in one whose
// timing adapts.
func (r *runner) suspicions(ctx context.Context, report *Report) (err error) {
	watched, cancel := context.WithCancel(ctx)
	var groups []*harness
	defer func() {
		cancel()
		for _, h := range groups {
			err = errors.Join(err, h.cluster.Close())
		}
	}()
	timings := []*agentcluster.Timing{nil}
	if r.options.minHeartbeat > 0 {
		timings = append(timings, r.options.adaptiveTiming())
	}
	for _, timing := range timings {
		h, err := r.calmGroup(watched, timing)
		if err != nil {
			return err
		}
		groups = append(groups, h)
	}
	counts := make([]*count, len(groups))
	for i, h := range groups {
		if counts[i], err = h.beginCount(ctx); err != nil {
			return err
		}
	}
	if err := r.waitUnderLoad(ctx); err != nil {
		return err
	}
	for i, h := range groups {
		s, err := h.endCount(ctx, counts[i], r.options.busy)
		if err != nil {
			return err
		}
		if timings[i] != nil {
			s.MinHeartbeat = timings[i].MinHeartbeatMillis
		}
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
	h, err := newHarness(ctx, plan, "Majority")
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
	for range r.options.busy {
		busy, err := benchmark.StartChild(ctx, busyCommand)
		if err != nil {
			return err
		}
		defer busy.Kill()
	}
	return benchmark.Wait(ctx, r.options.suspicions)
}

// count is the state of a group before a load.
type count struct {
	begun    time.Time
	counters map[string]float64
	leader   group.Leader
}

func (h *harness) beginCount(ctx context.Context) (*count, error) {
	before, err := counters(ctx, h.cluster)
	if err != nil {
		return nil, err
	}
	leader, err := h.cluster.Leader(ctx, h.coordinator)
	if err != nil {
		return nil, err
	}
	h.observer.begin()
	return &count{begun: time.Now(), counters: before, leader: leader}, nil
}

func (h *harness) endCount(ctx context.Context, before *count, busy int) (*Suspicions, error) {
	s := &Suspicions{Seconds: time.Since(before.begun).Seconds(), Agents: len(h.cluster.Names()), Busy: busy}
	var err error
	if s.Counters, err = counters(ctx, h.cluster); err != nil {
		return nil, err
	}
	for name := range s.Counters {
		s.Counters[name] -= before.counters[name]
	}
	_ = h.observer.await(ctx, func(_ map[string]agentcluster.Observation, events []agentcluster.Observation) bool {
		for _, event := range events {
			if event.Leader.Coordinator != h.coordinator || event.Leader.Term != before.leader.Term {
				s.Changes++
			}
		}
		return true
	})
	interval, err := heartbeat(ctx, h.cluster, h.coordinator)
	if err != nil {
		return nil, err
	}
	s.Heartbeat = benchmark.Millis(interval)
	s.Goals = []benchmark.Goal{
		benchmark.AtMost("false changes of coordinator or term", "changes", float64(s.Changes), 0),
		benchmark.AtMost("false suspicions", "suspicions", s.Counters[suspicions], 0),
	}
	return s, nil
}

// counters returns the values of the counters, added up over all agents and labels.
func counters(ctx context.Context, c *agentcluster.Cluster) (map[string]float64, error) {
	sums := map[string]float64{}
	for _, name := range c.Names() {
		metrics, err := c.Metrics(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, counter := range counted {
			if !strings.Contains(metrics, "# TYPE "+counter+" counter") {
				return nil, fmt.Errorf("agent %s has no counter %s", name, counter)
			}
		}
		for line := range strings.Lines(metrics) {
			sample, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			counter, _, _ := strings.Cut(sample, "{")
			if !slices.Contains(counted, counter) {
				continue
			}
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("agent %s, %s: %w", name, line, err)
			}
			sums[counter] += number
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
