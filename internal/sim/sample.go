package sim

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Sampling are schedules to draw and run. Schedule i has the seed Seed+i, so
// that each can be run again by itself.
type Sampling struct {
	Algorithm string
	Processes int
	// Safety is the mode; empty is Majority.
	Safety string
	// Faults are the names of what may go wrong; none is nothing.
	Faults    []string
	Schedules int
	Seed      uint64
	// MaxViolations, if set, is how many violations end the sampling.
	MaxViolations int
	// Workers run schedules side by side; 0 is one for each processor.
	Workers int
	// Progress, if set, is called now and then, by one goroutine at a time.
	Progress func(done int)
	// Watch, if set, is told of every step; then one worker runs.
	Watch func(Step)
}

// Report is what a sampling found.
type Report struct {
	Schedules int
	// Violated counts the schedules with a violation; Violations are the first
	// few of them.
	Violated   int
	Violations []Violation
	// Distinct estimates how many different traces the schedules had.
	Distinct uint64
	// Steps counts the inputs that Machines took.
	Steps uint64
}

// maxSampledProcesses is how many processes a sampled world starts with, so that others
// have room to join.
const maxSampledProcesses = 20

// maxReportedViolations is how many violations a report names.
const maxReportedViolations = 10

// batch is how many schedules a worker takes at once.
const batchSize = 512

func (s *Sampling) settings() (settings, error) {
	algorithm, err := catalog.Find(s.Algorithm)
	if err != nil {
		return settings{}, inputErrorf("%v", err)
	}
	if s.Processes < 1 || s.Processes > maxSampledProcesses {
		return settings{}, inputErrorf("schedules run with 1 to %d processes, not %d", maxSampledProcesses, s.Processes)
	}
	if s.Schedules < 1 {
		return settings{}, inputErrorf("schedules must be 1 or more, not %d", s.Schedules)
	}
	mode := office.Majority
	if s.Safety != "" {
		if mode, err = office.ParseMode(s.Safety); err != nil {
			return settings{}, inputErrorf("%v", err)
		}
	}
	faults, err := ParseFaults(s.Faults)
	return settings{algorithm: algorithm, mode: mode, size: s.Processes, faults: faults}, err
}

// Sample runs schedules until all are done, or ctx is.
func Sample(ctx context.Context, s Sampling) (Report, error) {
	setting, err := s.settings()
	if err != nil {
		return Report{}, err
	}
	workers := s.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if s.Watch != nil {
		workers = 1
	}
	c := &collector{sampling: &s}
	var wait sync.WaitGroup
	for range workers {
		w, err := newSimulation(setting)
		if err != nil {
			return Report{}, err
		}
		w.watch = s.Watch
		wait.Go(func() { c.work(ctx, w) })
	}
	wait.Wait()
	c.report.Distinct = min(c.traces.estimate(), uint64(c.report.Schedules))
	return c.report, nil
}

// collector gathers what the workers find.
type collector struct {
	sampling *Sampling
	next     atomic.Int64
	lock     sync.Mutex
	report   Report
	traces   sketch
}

func (c *collector) work(ctx context.Context, s *simulation) {
	var traces sketch
	for ctx.Err() == nil {
		from := int(c.next.Add(batchSize)) - batchSize
		to := min(from+batchSize, c.sampling.Schedules)
		if from >= to {
			return
		}
		var found []Violation
		violated := 0
		s.steps = 0
		for i := from; i < to; i++ {
			v := s.run(c.sampling.Seed + uint64(i))
			traces.add(s.traceHash)
			if v == nil {
				continue
			}
			violated++
			if len(found) < maxReportedViolations {
				found = append(found, *v)
			}
			if violated == c.sampling.MaxViolations {
				to = i + 1
			}
		}
		c.add(to-from, violated, found, s.steps, &traces)
	}
}

func (c *collector) add(schedules, violated int, found []Violation, steps uint64, traces *sketch) {
	c.lock.Lock()
	defer c.lock.Unlock()
	r := &c.report
	r.Schedules += schedules
	r.Violated += violated
	r.Steps += steps
	// Workers finish in any order; the lowest seeds are the ones to report.
	r.Violations = append(r.Violations, found...)
	slices.SortFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.Seed, b.Seed) })
	r.Violations = r.Violations[:min(len(r.Violations), maxReportedViolations)]
	if e := c.sampling.MaxViolations; e > 0 && r.Violated >= e {
		c.next.Store(int64(c.sampling.Schedules))
	}
	c.traces.merge(traces)
	if c.sampling.Progress != nil {
		c.sampling.Progress(r.Schedules)
	}
}
