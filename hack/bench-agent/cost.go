package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/troupe"
)

// Idle is what agents cost while nothing happens.
type Idle struct {
	Peers   int     `json:"peers"`
	Seconds float64 `json:"seconds"`
	// Resident is the memory of an agent, the median over all.
	Resident float64 `json:"residentMiB"`
	// Coordinator and Follower are shares of a core, in percent; Follower the
	// median.
	Coordinator float64 `json:"coordinatorPercent"`
	Follower    float64 `json:"followerPercent"`
	Goals       []Goal  `json:"goals"`
}

// idlePeers is how many peers an idle agent has.
const idlePeers = 5

// measureIdle looks at agents with default timing that nobody asks anything.
func measureIdle(ctx context.Context, plan troupe.Plan, period time.Duration) (*Idle, error) {
	plan.Agents = idlePeers + 1
	t, err := troupe.New(ctx, plan)
	if err != nil {
		return nil, err
	}
	idle, err := watchIdle(ctx, t, period)
	return idle, errors.Join(err, t.Close())
}

func watchIdle(ctx context.Context, t *troupe.Troupe, period time.Duration) (*Idle, error) {
	if err := t.Start(); err != nil {
		return nil, err
	}
	b := &bench{troupe: t, audience: newAudience(t)}
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	before, err := usage(t)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := pass(ctx, period); err != nil {
		return nil, err
	}
	after, err := usage(t)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(begun)
	var resident, followers []float64
	idle := &Idle{Peers: idlePeers, Seconds: elapsed.Seconds()}
	for name, used := range after {
		share := 100 * float64(used.cpu-before[name].cpu) / float64(elapsed)
		resident = append(resident, float64(used.resident)/(1<<20))
		if name == b.coordinator {
			idle.Coordinator = share
		} else {
			followers = append(followers, share)
		}
	}
	slices.Sort(resident)
	slices.Sort(followers)
	idle.Resident, idle.Follower = rank(resident, 50), rank(followers, 50)
	idle.Goals = []Goal{
		atMost("resident memory", "MiB", idle.Resident, 15),
		atMost("CPU of a follower", "% of a core", idle.Follower, 0.1),
		atMost("CPU of the coordinator", "% of a core", idle.Coordinator, 0.1),
	}
	return idle, nil
}

// pass lets time pass: what is measured is what happens meanwhile.
func pass(ctx context.Context, period time.Duration) error {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// used is what a process has used so far.
type used struct {
	cpu      time.Duration
	resident int64
}

func usage(t *troupe.Troupe) (map[string]used, error) {
	all := map[string]used{}
	for _, name := range t.Names() {
		folder := filepath.Join("/proc", strconv.Itoa(t.Agent(name).PID()))
		cpu, err := cpuTime(folder)
		if err != nil {
			return nil, fmt.Errorf("see how busy agent %s was: %w", name, err)
		}
		resident, err := residentMemory(folder)
		if err != nil {
			return nil, fmt.Errorf("see how large agent %s is: %w", name, err)
		}
		all[name] = used{cpu, resident}
	}
	return all, nil
}

// cpuTime adds up the threads, in nanoseconds. The process's own stat counts in
// hundredths of seconds, which is more than an idle agent uses in 10 s.
func cpuTime(folder string) (time.Duration, error) {
	threads, err := filepath.Glob(filepath.Join(folder, "task", "*", "schedstat"))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(err, fmt.Errorf("no schedstat of threads in %s", folder))
	}
	var sum time.Duration
	for _, thread := range threads {
		content, err := os.ReadFile(thread)
		if err != nil {
			return 0, err
		}
		onCPU, _, _ := strings.Cut(string(content), " ")
		nanoseconds, err := strconv.ParseInt(onCPU, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", thread, err)
		}
		sum += time.Duration(nanoseconds)
	}
	return sum, nil
}

func residentMemory(folder string) (int64, error) {
	file, err := os.Open(filepath.Join(folder, "status"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "VmRSS:"); found {
			kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kibibytes << 10, err
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("its status has no VmRSS"))
}
