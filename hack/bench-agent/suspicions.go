package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// Suspicions counts how often agents were suspected to have crashed although all were
// running, while every core of the machine was busy.
type Suspicions struct {
	Seconds float64 `json:"seconds"`
	Agents  int     `json:"agents"`
	// Busy is the number of processes that kept a core busy, with the agents' niceness.
	Busy int `json:"busy"`
	// Counters are the increases of the agents' counters, added up over all agents.
	Counters map[string]float64 `json:"counters"`
	// Changes is the number of events in which an agent announced another coordinator
	// or term.
	Changes int            `json:"changes"`
	Goal    benchmark.Goal `json:"goal"`
}

const (
	busyCommand = "busy"
	suspicions  = "conclave_suspicions_total"
)

// counted are the metrics that are reported.
var counted = []string{suspicions, "conclave_false_suspicions_total", "conclave_elections_total"}

func (s *Suspicions) names() []string { return slices.Sorted(maps.Keys(s.Counters)) }

func (r *runner) suspicions(ctx context.Context, report *Report) (err error) {
	const agents = 5
	plan, err := r.plan("Majority", agents)
	if err != nil {
		return err
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	h, err := newHarness(watched, plan, "Majority")
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, h.cluster.Close())
	}()
	r.printf("counting suspicions for %s while all %d cores are busy", r.options.suspicions, runtime.NumCPU())
	var busy []*exec.Cmd
	defer func() {
		for _, command := range busy {
			end(command)
		}
	}()
	for range runtime.NumCPU() {
		command, _, err := launch(ctx, busyCommand)
		if err != nil {
			return err
		}
		busy = append(busy, command)
	}
	report.Suspicions, err = h.suspicions(ctx, r.options.suspicions, len(busy))
	return err
}

func (h *harness) suspicions(ctx context.Context, period time.Duration, busy int) (*Suspicions, error) {
	before, err := counters(ctx, h.cluster)
	if err != nil {
		return nil, err
	}
	term, err := h.cluster.Leader(ctx, h.coordinator)
	if err != nil {
		return nil, err
	}
	h.observer.begin()
	begun := time.Now()
	if err := benchmark.Wait(ctx, period); err != nil {
		return nil, err
	}
	s := &Suspicions{Seconds: time.Since(begun).Seconds(), Agents: len(h.cluster.Names()), Busy: busy}
	if s.Counters, err = counters(ctx, h.cluster); err != nil {
		return nil, err
	}
	for name := range s.Counters {
		s.Counters[name] -= before[name]
	}
	_ = h.observer.await(ctx, func(_ map[string]agentcluster.Observation, events []agentcluster.Observation) bool {
		for _, event := range events {
			if event.Leader.Coordinator != h.coordinator || event.Leader.Term != term.Term {
				s.Changes++
			}
		}
		return true
	})
	s.Goal = benchmark.AtMost("false suspicions", "suspicions", s.Counters[suspicions], 0)
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
