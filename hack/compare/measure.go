package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// runner measures the selected systems.
type runner struct {
	options  *options
	systems  []system
	env      *environment
	folder   string
	progress io.Writer

	mutex  sync.Mutex // guards report and sets
	report *Report
	sets   int
}

// run measures all systems and writes the report.
func run(ctx context.Context, o *options, progress io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "compare-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r := &runner{
		options: o, env: &environment{agent: o.agent, counted: true}, folder: folder, progress: progress,
		report: &Report{Rounds: o.rounds, Candidates: candidates},
	}
	if r.systems, err = o.selected(); err != nil {
		return err
	}
	r.printf("waiting until the machine is quiet, for a minute at most")
	if err := r.report.describeMachine(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.env.stop()) }()
	if err := r.prepare(); err != nil {
		return err
	}
	if r.report.Busy > busyLimit {
		r.printf("WARNING: other processes use %.0f %% of the machine: the report says so, don't publish it", r.report.Busy)
	}
	if err := r.failovers(ctx); err != nil {
		return err
	}
	if err := r.outage(ctx); err != nil {
		return err
	}
	if err := r.idle(ctx); err != nil {
		return err
	}
	r.report.LoadAfter = loadAverage()
	r.report.sort()
	r.printf("writing %s.md, .json and .svg", o.output)
	return r.report.write(o.output)
}

// printf prints a line of progress.
func (r *runner) printf(format string, arguments ...any) {
	fmt.Fprintf(r.progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", arguments...)
}

// prepare starts what the systems need. It leaves out systems for which programs are missing.
func (r *runner) prepare() error {
	r.systems = slices.DeleteFunc(slices.Clone(r.systems), func(s system) bool {
		if _, err := exec.LookPath("redis-server"); err == nil || !strings.HasPrefix(s.name, "sentinel") {
			return false
		}
		r.printf("%s: left out, because redis-server isn't in PATH; see hack/packages", s.title)
		r.report.LeftOut = append(r.report.LeftOut, s.title+": redis-server isn't installed.")
		return true
	})
	if slices.ContainsFunc(r.systems, func(s system) bool { return s.server }) {
		r.printf("starting an API server and etcd")
		return r.env.startServer(r.folder)
	}
	return nil
}

func (r *runner) newSet(ctx context.Context, s system, size, groups int, poll time.Duration) (*set, error) {
	r.mutex.Lock()
	r.sets++
	name := s.name + "-" + strconv.Itoa(r.sets)
	r.mutex.Unlock()
	return newSet(ctx, s, name, r.folder, size, groups, poll, r.env)
}

// maxSets is how many sets of candidates that wait for most of the time are measured at once. More of them delay each
// other.
const maxSets = 10

// slowPoll is how often candidates of these systems ask whether they lead.
const slowPoll = 50 * time.Millisecond

// silentCopies is the number of sets in which silent leaders of a system with memory are measured.
const silentCopies = 6

// failovers measures the systems that need milliseconds one after the other, then some sets of the others at a time.
func (r *runner) failovers(ctx context.Context) error {
	var slow []system
	stop := watchDelays()
	for _, s := range r.systems {
		if s.copies > 0 {
			slow = append(slow, s)
			continue
		}
		prompt := s
		if s.memory > 0 {
			prompt.without = faultNames(true)
			s.copies, s.without = silentCopies, faultNames(false)
			slow = append(slow, s)
		}
		if err := r.failoversOf(ctx, prompt, 1, r.options.rounds, time.Millisecond); err != nil {
			return err
		}
	}
	r.report.DelaysAlone = stop()
	// Those that take longest begin first.
	slices.SortStableFunc(slow, func(a, b system) int { return cmp.Compare(b.copies, a.copies) })
	var work sync.WaitGroup
	failures := make(chan error, len(slow))
	slots := semaphore.NewWeighted(maxSets)
	stop = watchDelays()
	for _, s := range slow {
		copies := min(s.copies, r.options.rounds)
		if err := slots.Acquire(ctx, int64(copies)); err != nil {
			break // ctx has ended, and so do those that run.
		}
		work.Go(func() {
			defer slots.Release(int64(copies))
			failures <- r.failoversOf(ctx, s, copies, (r.options.rounds+copies-1)/copies, slowPoll)
		})
	}
	work.Wait()
	r.report.DelaysTogether = stop()
	close(failures)
	if d := r.report.DelaysTogether; d.P99 > delayLimit {
		r.printf(
			"WARNING: the machine is too slow for this: a process that slept was woken %s late (p99): don't publish the report",
			duration(d.P99))
	}
	err := ctx.Err()
	for failed := range failures {
		err = errors.Join(err, failed)
	}
	return err
}

// failoversOf measures each fault in a number of sets at the same time.
func (r *runner) failoversOf(ctx context.Context, of system, copies, rounds int, poll time.Duration) error {
	r.printf("%s: %d sets of %d candidates, %d rounds each", of.title, copies, candidates, rounds)
	outcomes := make([][]outcome, len(faults))
	var mutex sync.Mutex
	var work sync.WaitGroup
	var failed error
	for range copies {
		work.Go(func() {
			err := r.roundsOf(ctx, of, rounds, poll, func(fault int, o outcome) {
				mutex.Lock()
				defer mutex.Unlock()
				outcomes[fault] = append(outcomes[fault], o)
			})
			mutex.Lock()
			defer mutex.Unlock()
			failed = errors.Join(failed, err)
		})
	}
	work.Wait()
	if failed != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if failed != nil {
		r.fail("%s: %s", of.title, failed)
	}
	for i, f := range faults {
		if len(outcomes[i]) > 0 {
			failover := newFailover(of, f, outcomes[i])
			r.report.Failovers = append(r.report.Failovers, failover)
			r.printf("%s, %s: %s", of.title, f.name, failover)
		}
	}
	return nil
}

func (r *runner) roundsOf(ctx context.Context, of system, rounds int, poll time.Duration,
	done func(int, outcome),
) error {
	s, err := r.newSet(ctx, of, candidates, 1, poll)
	if err != nil {
		return err
	}
	defer s.stop()
	for i, f := range faults {
		if slices.Contains(of.without, f.name) {
			continue
		}
		for range rounds {
			result, err := s.round(ctx, f)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			done(i, result)
		}
	}
	return nil
}

// idle measures all systems at the same time, once for each number of groups. With many groups, some systems need all
// of the machine, so they are measured one after the other.
func (r *runner) idle(ctx context.Context) error {
	for _, groups := range []int{1, 10} {
		if err := r.idleWith(ctx, r.systems, groups); err != nil {
			return err
		}
	}
	for _, s := range r.systems {
		if err := r.idleWith(ctx, []system{s}, manyGroups); err != nil {
			return err
		}
	}
	return nil
}

// manyGroups is the largest number of groups.
const manyGroups = 100

func (r *runner) idleWith(ctx context.Context, systems []system, groups int) error {
	systems = slices.DeleteFunc(slices.Clone(systems),
		func(s system) bool { return groups > 1 && s.single || groups > cmp.Or(s.most, groups) })
	if len(systems) == 0 {
		return nil
	}
	r.printf("idle: starting %d systems with %d groups", len(systems), groups)
	sets := r.settledSets(ctx, systems, groups, 0)
	defer func() {
		for _, s := range sets {
			s.stop()
		}
	}()
	if len(sets) == 0 {
		return nil
	}
	// Those that have settled first have been idle for longer. Until the others are, too, some work of their start goes
	// on.
	if err := benchmark.Wait(ctx, r.options.idle); err != nil {
		return err
	}
	r.printf("idle: measuring %d systems for %s", len(sets), r.options.idle)
	return r.observeIdle(ctx, sets, groups)
}

// settledSets returns a set of each system that agrees on a leader in all groups. The report says which don't. The sets
// start one after the other, since a machine that starts all of them at once is too slow for some.
func (r *runner) settledSets(ctx context.Context, systems []system, groups int, poll time.Duration) (sets []*set) {
	for _, of := range systems {
		s, err := r.newSet(ctx, of, candidates, groups, poll)
		if err == nil {
			if _, err = s.settle(ctx); err != nil {
				s.stop()
			}
		}
		if err == nil {
			sets = append(sets, s)
			continue
		}
		r.mutex.Lock()
		r.fail("%s, start with %d groups: %s", of.title, groups, err)
		r.mutex.Unlock()
	}
	return sets
}

// fail reports that a measurement ended early. The caller holds the mutex.
func (r *runner) fail(format string, arguments ...any) {
	r.report.Failures = append(r.report.Failures, fmt.Sprintf(format, arguments...))
	r.printf("FAILED: "+format, arguments...)
}

// cost is what the candidates of a set have used so far.
type cost struct {
	cpu                time.Duration
	resident, requests int64
}

func (r *runner) observeIdle(ctx context.Context, sets []*set, groups int) error {
	before, err := costs(sets)
	if err != nil {
		return err
	}
	sentBefore, err := r.env.sent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := benchmark.Wait(ctx, r.options.idle); err != nil {
		return err
	}
	after, err := costs(sets)
	if err != nil {
		return err
	}
	elapsed := time.Since(began)
	sent, err := r.env.sent(ctx)
	if err != nil {
		return err
	}
	for i, s := range sets {
		size := float64(len(s.candidates))
		perSecond := func(n float64) float64 { return n / size / elapsed.Seconds() }
		r.report.Idle = append(r.report.Idle, Idle{
			System: s.of.name, Groups: groups, Members: len(s.candidates),
			CPU:      100 * float64(after[i].cpu-before[i].cpu) / float64(elapsed) / size,
			Resident: benchmark.MiB(after[i].resident) / size,
			Requests: perSecond(float64(after[i].requests - before[i].requests)),
			Packets:  perSecond(sent[s.of.name].Packets - sentBefore[s.of.name].Packets),
			Bytes:    perSecond(sent[s.of.name].Bytes - sentBefore[s.of.name].Bytes),
		})
	}
	return nil
}

func costs(sets []*set) ([]cost, error) {
	all := make([]cost, len(sets))
	groups, err := processGroups()
	if err != nil {
		return nil, err
	}
	for i, s := range sets {
		for _, c := range s.candidates {
			for _, pid := range groups[c.command.Process.Pid] {
				used, err := benchmark.UsageOf(pid)
				if err != nil {
					return nil, err
				}
				all[i].cpu += used.CPU
				all[i].resident += used.Resident
			}
			s.mutex.Lock()
			all[i].requests += c.requests
			s.mutex.Unlock()
		}
	}
	return all, nil
}

// processGroups returns the processes of each process group.
func processGroups() (map[int][]int, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	groups := map[int][]int{}
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			return nil, err
		}
		if group, err := syscall.Getpgid(pid); err == nil { // Otherwise it has ended.
			groups[group] = append(groups[group], pid)
		}
	}
	return groups, err
}
