// Package sim runs elections on a virtual network with virtual clocks.
//
// It has two entry points:
//
//   - Run runs a Scenario: one election as the textbooks describe it, with given
//     crashed processes and initiators, and counts its messages.
//   - Sample runs random schedules. Each schedule draws faults from a seed and
//     checks the invariants of the protocol after every step.
//
// The tests also visit every interleaving of the messages of a small group.
//
// The simulator runs the same Machines as the agent. It delivers their messages
// and sets their timers, and takes no part in their decisions.
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
	"github.com/conclave-dev/conclave/internal/transcript"
)

// Sampling is a number of random schedules. Schedule i has the seed Seed+i, so each can be run again alone.
type Sampling struct {
	Algorithm string
	Processes int
	// Safety is the mode of the offices, by default Majority.
	Safety string
	// Faults are the names of the faults that may happen.
	Faults    []string
	Schedules int
	Seed      uint64
	// ConvergenceEvery, if above 1, ends each schedule with its last fault, except for 8
	// consecutive seeds of each 8 * ConvergenceEvery. The others check what must not happen, and leave out what must
	// happen: convergence, and with Graph that a process holds the office and keeps it.
	ConvergenceEvery int
	// MaxViolations, if set, ends the sampling after so many violations.
	MaxViolations int
	// Workers is the number of goroutines that run schedules, by default one for each processor.
	Workers int
	// Watch, if set, is called after every step. It limits Workers to 1.
	Watch func(transcript.Step)
}

// Report is the result of a Sampling.
type Report struct {
	Schedules int
	// Continued counts the schedules that were continued after their last fault, so that convergence was checked.
	Continued int
	// Violated counts the schedules with a violation. Violations has those with the lowest seeds.
	Violated   int
	Violations []Violation
	// Steps counts the steps of all Machines.
	Steps uint64
	// Outages has how long there was no coordinator after each kind of fault.
	Outages []Outage
}

// maxSampledProcesses is the most processes that a schedule may start with. It is
// less than maxMembers, so that others can join.
const maxSampledProcesses = 20

const maxReportedViolations = 10

// batchSize is the number of schedules that a worker runs before it reports.
const batchSize = 512

func (s *Sampling) settings() (settings, error) {
	algorithm, err := catalog.Find(s.Algorithm)
	if err != nil {
		return settings{}, inputErrorf("%v", err)
	}
	if s.Processes < 1 || s.Processes > maxSampledProcesses {
		return settings{}, inputErrorf("schedules must have 1 to %d processes, not %d", maxSampledProcesses, s.Processes)
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
	if s.ConvergenceEvery < 0 {
		return settings{},
			inputErrorf("the number of schedules for each check of convergence must be 1 or more, not %d", s.ConvergenceEvery)
	}
	faults, err := ParseFaults(s.Faults)
	return settings{algorithm: algorithm, mode: mode, size: s.Processes, faults: faults, convergenceEvery: uint64(
		s.ConvergenceEvery)}, err
}

// Sample runs schedules until all are done or ctx is canceled. It returns an *InputError if the Sampling is invalid.
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
		simulation, err := newSimulation(setting)
		if err != nil {
			return Report{}, err
		}
		simulation.watch = s.Watch
		wait.Go(func() { c.work(ctx, simulation) })
	}
	wait.Wait()
	c.report.Outages = c.outages.report()
	return c.report, nil
}

type collector struct {
	sampling *Sampling
	next     atomic.Int64
	lock     sync.Mutex
	report   Report
	outages  outages
}

func (c *collector) work(ctx context.Context, s *simulation) {
	for ctx.Err() == nil {
		from := int(c.next.Add(batchSize)) - batchSize
		to := min(from+batchSize, c.sampling.Schedules)
		if from >= to {
			return
		}
		var found []Violation
		violated := 0
		s.steps, s.continued = 0, 0
		for i := from; i < to; i++ {
			v := s.run(c.sampling.Seed + uint64(i))
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
		c.add(to-from, violated, found, s)
	}
}

func (c *collector) add(schedules, violated int, found []Violation, s *simulation) {
	c.lock.Lock()
	defer c.lock.Unlock()
	r := &c.report
	r.Schedules += schedules
	r.Violated += violated
	r.Steps += s.steps
	r.Continued += s.continued
	for kind := range s.outages.durations {
		c.outages.durations[kind].merge(&s.outages.durations[kind])
	}
	// Workers finish in any order. Report the violations with the lowest seeds.
	r.Violations = append(r.Violations, found...)
	slices.SortFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.Seed, b.Seed) })
	r.Violations = r.Violations[:min(len(r.Violations), maxReportedViolations)]
	if e := c.sampling.MaxViolations; e > 0 && r.Violated >= e {
		c.next.Store(int64(c.sampling.Schedules))
	}
}
