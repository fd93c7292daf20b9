package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// measurer has what all groups are measured with.
type measurer struct {
	options  *options
	progress io.Writer
	floor    *floor
	binary   string
	folder   string
	groups   int
}

func measure(ctx context.Context, o *options, progress io.Writer) (*Report, error) {
	folder, err := os.MkdirTemp("", "bench-agent-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	m := &measurer{options: o, progress: progress, folder: folder}
	m.say("building the agent")
	if m.binary, err = agentcluster.Build(ctx, folder, false); err != nil {
		return nil, err
	}
	report := newReport()
	if o.suspicions > 0 {
		err := m.suspicions(ctx, report)
		return report, err
	}
	if m.floor, err = newFloor(ctx); err != nil {
		return nil, fmt.Errorf("measure the floor: %w", err)
	}
	defer m.floor.close()
	for _, mode := range o.modes {
		for _, agents := range o.agents {
			group, err := m.group(ctx, mode, agents)
			if err != nil {
				return nil, fmt.Errorf("%d agents, %s: %w", agents, mode, err)
			}
			report.Groups = append(report.Groups, group)
		}
	}
	if o.idle > 0 {
		m.say("looking at idle agents for %s", o.idle)
		plan, err := m.plan("Majority", 0)
		if err != nil {
			return nil, err
		}
		if report.Idle, err = measureIdle(ctx, plan, o.idle); err != nil {
			return nil, fmt.Errorf("idle agents: %w", err)
		}
	}
	return report, nil
}

func (m *measurer) say(format string, arguments ...any) {
	fmt.Fprintf(m.progress, "bench-agent: "+format+"\n", arguments...)
}

// plan is a group with the default timing. Nobody takes over from a healthy
// coordinator, so that each kill is followed by one election.
func (m *measurer) plan(mode string, agents int) (agentcluster.Options, error) {
	m.groups++
	folder := filepath.Join(m.folder, fmt.Sprint(m.groups))
	stable := 0
	plan := agentcluster.Options{
		Binary: m.binary, Folder: folder, Agents: agents, TLS: m.options.tls,
		Group: agentcluster.Group{
			Safety: &agentcluster.Safety{Mode: mode}, Preemption: &agentcluster.Preemption{Policy: "Never", StableSeconds: &stable},
		},
	}
	return plan, os.Mkdir(folder, 0o700)
}

func (m *measurer) group(ctx context.Context, mode string, agents int) (group *Group, err error) {
	plan, err := m.plan(mode, agents)
	if err != nil {
		return nil, err
	}
	m.say("%d agents, %s: starting", agents, mode)
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := newBench(watched, plan, mode)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, b.troupe.Logs(logLines))
		}
		cancel()
		err = errors.Join(err, b.troupe.Close())
	}()
	group = &Group{Agents: agents, Mode: mode, TLS: m.options.tls}
	if err := m.kills(ctx, b, group); err != nil {
		return nil, err
	}
	if group.Stops, err = m.rounds(ctx, group, "stop", m.options.stops, b.stop); err != nil {
		return nil, err
	}
	// Last, since whoever hands over stays away for a while.
	if group.HandOvers, err = m.rounds(ctx, group, "hand-over", m.options.handOvers, b.handOver); err != nil {
		return nil, err
	}
	group.judge()
	return group, nil
}

// logLines is how much of each agent's log is shown if a bench fails.
const logLines = 10

// kills takes turns with the floor.
func (m *measurer) kills(ctx context.Context, b *bench, group *Group) (err error) {
	count := m.options.kills
	if group.Agents >= many {
		count = min(count, m.options.killsOfMany)
	}
	var floors []time.Duration
	group.Kills, err = m.rounds(ctx, group, "kill", count, func(ctx context.Context) (time.Duration, error) {
		took, err := m.floor.round(ctx)
		if err != nil {
			return 0, fmt.Errorf("measure the floor: %w", err)
		}
		floors = append(floors, took)
		return b.kill(ctx)
	})
	group.Floor = benchmark.NewSeries(floors)
	return err
}

// rounds repeats something. A round that is late is reported and counts as
// failed; any other error ends the measurement.
func (m *measurer) rounds(ctx context.Context, group *Group, what string, count int, round func(context.Context) (time.Duration, error)) (*benchmark.Series, error) {
	if group.Agents < 2 {
		count = 0
	}
	var all []time.Duration
	for i := range count {
		took, err := round(ctx)
		var late lateError
		switch {
		case errors.As(err, &late):
			first, _, _ := strings.Cut(late.what, "\n")
			group.Failures = append(group.Failures, fmt.Sprintf("%s %d: %s", what, i+1, first))
			m.say("%d agents, %s, %s %d: %s", group.Agents, group.Mode, what, i+1, late.what)
		case err != nil:
			return nil, fmt.Errorf("%s %d: %w", what, i+1, err)
		default:
			all = append(all, took)
		}
		if (i+1)%steps(count) == 0 {
			m.say("%d agents, %s: %d of %d rounds of %s", group.Agents, group.Mode, i+1, count, what)
		}
	}
	return benchmark.NewSeries(all), nil
}

// steps is how many rounds there are between two lines of progress.
func steps(count int) int { return max(1, count/4) }
