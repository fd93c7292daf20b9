package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// elections measures elections of random groups at a steady rate.
func (e *scaleEnv) elections(ctx context.Context) error {
	e.printf("%g elections a second for %s", e.options.rate, e.options.elections)
	requestsBefore, err := e.requests.count(ctx)
	if err != nil {
		return err
	}
	cpuBefore, err := e.cpuTimes()
	if err != nil {
		return err
	}
	begun := time.Now()
	result := &Elections{}
	if err := e.runElections(ctx, result); err != nil {
		return err
	}
	result.Seconds = time.Since(begun).Seconds()
	requests, err := e.requests.count(ctx)
	if err != nil {
		return err
	}
	cpu, err := e.cpuTimes()
	if err != nil {
		return err
	}
	lags, missed := e.observer.result()
	e.result.Missed = append(e.result.Missed, missed...)
	result.Lag = benchmark.NewSeries(lags)
	result.Requests = requests.minus(requestsBefore).per(result.Count)
	result.Cost = cpu.minus(cpuBefore).per(result.Count)
	e.result.Elections = result
	return e.recordPeak()
}

// cpuTimes returns the CPU time of each program in milliseconds. The fake agents run in this program, which also
// watches the statuses.
func (e *scaleEnv) cpuTimes() (Quantities, error) {
	pids := map[string]int{"manager": e.manager.process.Process.Pid, "fake agents": os.Getpid()}
	var err error
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if pids[name], err = childPID(name); err != nil {
			return nil, err
		}
	}
	times := Quantities{}
	for name, pid := range pids {
		usage, err := benchmark.UsageOf(pid)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		times[name] = benchmark.Millis(usage.CPU)
	}
	return times, nil
}

// runElections starts elections and returns when a status has shown each of them, or 30 s after the last one.
func (e *scaleEnv) runElections(ctx context.Context, result *Elections) error {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / e.options.rate))
	defer ticker.Stop()
	var work sync.WaitGroup
	failed := make(chan error, 1)
	for until := time.After(e.options.elections); until != nil; {
		select {
		case <-ticker.C:
			g := e.groups.groups[rand.IntN(len(e.groups.groups))]
			next := e.nextElection(g)
			if !e.observer.expect(g.key, next) {
				result.Skipped++
				continue
			}
			result.Count++
			work.Go(func() {
				if err := e.elect(ctx, g, next); err != nil {
					select {
					case failed <- err:
					default: // Another election has already failed.
					}
				}
			})
		case err := <-failed:
			return err
		case <-until:
			until = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	work.Wait()
	// The result names the elections that are still pending after this.
	deadline := time.Now().Add(30 * time.Second)
	return e.manager.await(ctx, "the statuses to show the last elections", waitMax, func() (bool, error) {
		pending, err := e.observer.pendingElections()
		return pending == 0 || time.Now().After(deadline), err
	})
}

// nextElection chooses another coordinator than the last one, and a higher term.
func (e *scaleEnv) nextElection(g *fakeGroup) election {
	g.coordinator = (g.coordinator + 1 + rand.IntN(max(len(g.pods)-1, 1))) % len(g.pods)
	return election{coordinator: g.pods[g.coordinator], term: e.observer.term(g.key) + 1}
}

// electionGap is the time without a coordinator in an election. Five real agents need about that long after a kill.
const electionGap = 1500 * time.Microsecond

// elect makes the agents of a group report that no process leads, and after electionGap that another one does.
func (e *scaleEnv) elect(ctx context.Context, g *fakeGroup, next election) error {
	term := uint64(next.term) //nolint:gosec // terms aren't negative
	if err := g.clearCoordinator(term); err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, electionGap); err != nil {
		return err
	}
	e.observer.begin(g.key, time.Now())
	return g.setCoordinator(next.coordinator, term)
}
