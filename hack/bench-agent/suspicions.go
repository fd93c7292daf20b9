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

// Suspicions is how often agents were taken for dead while all were alive, and
// the machine as busy as it can be.
type Suspicions struct {
	Seconds float64 `json:"seconds"`
	Agents  int     `json:"agents"`
	// Busy is how many processes kept a core busy, at the agents' own niceness.
	Busy int `json:"busy"`
	// Counters are by how much the agents' counters have risen, all together.
	Counters map[string]float64 `json:"counters"`
	// Changes is how often an agent announced another coordinator or term.
	Changes int            `json:"changes"`
	Goal    benchmark.Goal `json:"goal"`
}

const (
	busyCommand = "busy"
	suspicions  = "conclave_suspicions_total"
)

// counted are the counters that matter here.
var counted = []string{suspicions, "conclave_false_suspicions_total", "conclave_elections_total"}

func (s *Suspicions) names() []string { return slices.Sorted(maps.Keys(s.Counters)) }

func (m *measurer) suspicions(ctx context.Context, report *Report) (err error) {
	const agents = 5
	plan, err := m.plan("Majority", agents)
	if err != nil {
		return err
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := newBench(watched, plan, "Majority")
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, b.troupe.Close())
	}()
	m.say("counting suspicions for %s, with all %d cores busy", m.options.suspicions, runtime.NumCPU())
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
	report.Suspicions, err = b.suspicions(ctx, m.options.suspicions, len(busy))
	return err
}

func (b *bench) suspicions(ctx context.Context, period time.Duration, busy int) (*Suspicions, error) {
	before, err := counters(ctx, b.troupe)
	if err != nil {
		return nil, err
	}
	term, err := b.troupe.Leader(ctx, b.coordinator)
	if err != nil {
		return nil, err
	}
	b.audience.begin()
	begun := time.Now()
	if err := benchmark.Wait(ctx, period); err != nil {
		return nil, err
	}
	s := &Suspicions{Seconds: time.Since(begun).Seconds(), Agents: len(b.troupe.Names()), Busy: busy}
	if s.Counters, err = counters(ctx, b.troupe); err != nil {
		return nil, err
	}
	for name := range s.Counters {
		s.Counters[name] -= before[name]
	}
	_ = b.audience.await(ctx, func(_ map[string]agentcluster.Observation, since []agentcluster.Observation) bool {
		for _, seen := range since {
			if seen.Leader.Coordinator != b.coordinator || seen.Leader.Term != term.Term {
				s.Changes++
			}
		}
		return true
	})
	s.Goal = benchmark.AtMost("suspicions of agents that are well", "suspicions", s.Counters[suspicions], 0)
	return s, nil
}

// counters adds up what the agents have counted, over all agents and labels.
func counters(ctx context.Context, t *agentcluster.Cluster) (map[string]float64, error) {
	sums := map[string]float64{}
	for _, name := range t.Names() {
		metrics, err := t.Metrics(ctx, name)
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
