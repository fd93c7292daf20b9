package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// runner runs the benchmark on one group after another.
type runner struct {
	options  *options
	progress io.Writer
	floor    *floor
	binary   string
	folder   string
	groups   int
}

// measure runs the benchmark. With an error, it also returns what it has measured before: that may have taken an hour.
func measure(ctx context.Context, o *options, progress io.Writer) (*Report, error) {
	report := &Report{}
	folder, err := os.MkdirTemp("", "bench-agent-")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(folder)
	r := &runner{options: o, progress: progress, folder: folder, binary: o.agent}
	if r.binary == "" {
		r.printf("building the agent")
		if r.binary, err = agentcluster.Build(ctx, folder, false); err != nil {
			return report, err
		}
	}
	if r.floor, err = newFloor(ctx); err != nil {
		return report, fmt.Errorf("cannot measure the floor: %w", err)
	}
	defer r.floor.close()
	for _, mode := range o.modes {
		for _, agents := range o.agents {
			group, err := r.group(ctx, mode, agents)
			if err != nil {
				return report, fmt.Errorf("%d agents, %s: %w", agents, mode, err)
			}
			report.Groups = append(report.Groups, group)
		}
	}
	if o.idle > 0 {
		err = r.idle(ctx, report)
	}
	return report, err
}

// printf prints a line of progress.
func (r *runner) printf(format string, arguments ...any) {
	fmt.Fprintf(r.progress, "bench-agent: "+format+"\n", arguments...)
}

// plan returns a group. Preemption is off, so that exactly one election follows each kill.
func (r *runner) plan(mode string, agents int) (agentcluster.Options, error) {
	r.groups++
	folder := filepath.Join(r.folder, fmt.Sprint(r.groups))
	plan := agentcluster.Options{
		Binary: r.binary, Folder: folder, Agents: agents, TLS: true,
		Group: agentcluster.Group{
			Safety:     agentcluster.Safety{Mode: mode, LeaseMillis: int32(5 * r.options.heartbeat)},
			Timing:     agentcluster.Timing{HeartbeatMillis: int32(r.options.heartbeat)},
			Preemption: agentcluster.Preemption{Policy: "Never", StableMillis: new(int32)},
		},
	}
	return plan, os.Mkdir(folder, 0o700)
}

func (r *runner) group(ctx context.Context, mode string, agents int) (group *Group, err error) {
	plan, err := r.plan(mode, agents)
	if err != nil {
		return nil, err
	}
	r.printf("%d agents, %s: starting", agents, mode)
	h, err := newHarness(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, h.cluster.Logs(logLines))
		}
		err = errors.Join(err, h.cluster.Close())
	}()
	group = &Group{Agents: agents, Mode: mode}
	if err := r.kills(ctx, h, group); err != nil {
		return nil, err
	}
	if group.Stops, err = r.rounds(ctx, h, group, "stop", r.options.stops, h.stop); err != nil {
		return nil, err
	}
	// Hand-overs come last, because a process that has stepped down is ineligible for a while.
	if group.HandOvers, err = r.rounds(ctx, h, group, "hand-over", r.options.handOvers, h.handOver); err != nil {
		return nil, err
	}
	if group.Peak, err = peak(h.cluster); err != nil {
		return nil, err
	}
	group.judge(r.options.heartbeat)
	return group, nil
}

// logLines is the number of lines of each agent's log that an error includes.
const logLines = 10

// A round in a large group takes long, so that fewer rounds are run there.
const (
	largeGroup   = 50
	killsOfLarge = 30
)

// maxWitnesses limits the processes that measure the floor: starting more for each kill would take too long.
const maxWitnesses = 20

// kills alternates between kills of the coordinator and measurements of the floor.
func (r *runner) kills(ctx context.Context, h *harness, group *Group) (err error) {
	count := r.options.kills
	if group.Agents >= largeGroup {
		count = min(count, killsOfLarge)
	}
	var floors []time.Duration
	group.Kills, err = r.rounds(ctx, h, group, "kill", count, func(ctx context.Context) (time.Duration, error) {
		if witnesses := group.Agents - 1; witnesses <= maxWitnesses {
			floor, err := r.floor.round(ctx, witnesses)
			if err != nil {
				return 0, fmt.Errorf("cannot measure the floor with %d witnesses: %w", witnesses, err)
			}
			floors = append(floors, floor)
		}
		return h.kill(ctx)
	})
	group.Floor = benchmark.NewSeries(floors)
	return err
}

// rounds runs a number of rounds, each with agents that follow the same coordinator. A round
// that times out is reported as a failure; any other error ends the benchmark.
func (r *runner) rounds(
	ctx context.Context, h *harness, group *Group, kind string, count int,
	round func(context.Context) (time.Duration, error),
) (*benchmark.Series, error) {
	if group.Agents < 2 {
		count = 0
	}
	var all []time.Duration
	for i := range count {
		if err := h.settle(ctx); err != nil {
			return nil, err
		}
		took, err := round(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			group.Failures = append(group.Failures, fmt.Sprintf("%s %d: %s", kind, i+1, err))
		case err != nil:
			return nil, fmt.Errorf("%s %d: %w", kind, i+1, err)
		default:
			all = append(all, took)
		}
		if (i+1)%progressInterval(count) == 0 {
			r.printf("%d agents, %s: %s %d of %d", group.Agents, group.Mode, kind, i+1, count)
		}
	}
	return benchmark.NewSeries(all), nil
}

// progressInterval is the number of rounds between two lines of progress.
func progressInterval(count int) int { return max(1, count/4) }
