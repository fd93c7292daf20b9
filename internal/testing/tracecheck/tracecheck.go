// Package tracecheck checks traces of elections against the rules of hack/model/grants.pml, step by step. It imports
// nothing of the core, so a mistake of the core isn't repeated here.
//
// A trace is what journal records, one of each run of a member. The state of the model follows from the inputs and the
// outputs alone: which state directory has promised what, who claims the office, and which grants a claim can count
// on. What the core remembers of that, on disk or in memory, is no part of it: a promise binds all runs with the same
// directory. Each output must be one that the rules permit in this state. They don't say what a member must do, nor
// when. A rule has the name of the switch that removes it from the Promela model, if there is one.
//
// A member's grant to itself is the only step that a trace doesn't show. It is assumed where a tenure relies on it, and
// lasts as long as the tenure relies on it.
package tracecheck

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
)

// Checker is the state of the model for one group.
type Checker struct {
	Steps, Tenures int

	// traces are by their names, processes are the latest of each life, and latest those of each name.
	traces    map[string]*process
	processes map[life]*process
	latest    map[string]*process
	voters    map[directory]*voter
	// sent are the messages of the office, of processes that have a trace.
	sent map[uint64]bool
	seed maphash.Seed
	// ended are the lives that are known to have ended. Majority relies on that. allStrict: none was in another mode.
	ended     map[life]bool
	allStrict bool
	// claimed is the highest term that a life has claimed, led has coordinators, and newest is the last term.
	claimed map[life]uint64
	led     map[tenure]bool
	newest  uint64
}

// life is one run of a member, directory what it stores, and tenure that it was coordinator in a term.
type (
	life struct {
		name   string
		number uint32
	}
	directory struct {
		name     string
		identity uint64
	}
	tenure struct {
		name string
		term uint64
	}
)

// New returns a checker of a group that has no traces yet.
func New() *Checker {
	return &Checker{
		traces: map[string]*process{}, processes: map[life]*process{}, latest: map[string]*process{},
		voters: map[directory]*voter{}, sent: map[uint64]bool{}, seed: maphash.MakeSeed(),
		ended: map[life]bool{}, allStrict: true, claimed: map[life]uint64{}, led: map[tenure]bool{},
	}
}

// event is a line of a trace: the header, or a step. It has its time, on a clock that is the same for all.
type event struct {
	trace  string
	at     int64
	header *header
	step   *step
}

// Line checks a line of a trace, at a moment on a clock that is the same for all.
func (c *Checker) Line(trace string, line []byte, at int64) (err error) {
	e := event{trace: trace, at: at}
	if c.traces[trace] == nil {
		err = json.Unmarshal(line, &e.header)
	} else {
		err = json.Unmarshal(line, &e.step)
	}
	if err != nil {
		return err
	}
	return c.check(&e)
}

func (c *Checker) check(e *event) error {
	if e.header == nil {
		return c.traces[e.trace].take(e.step, e.at)
	}
	c.traces[e.trace] = c.start(e.header)
	return nil
}

// Lines calls a function with each line of a trace. A line that isn't complete, because its process was killed, counts
// as missing.
func Lines(path string, call func(line []byte) error) error {
	text, err := os.ReadFile(path)
	number := 0
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		number++
		if err := call(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
	return err
}

// Files checks the traces of all members of a group, which must have run on one machine. It returns the numbers of
// steps and tenures.
func Files(paths ...string) (steps, tenures int, err error) {
	var events []event
	for _, path := range paths {
		var first *header
		if err := Lines(path, func(line []byte) (err error) {
			e := event{trace: path, step: new(step)}
			if first == nil {
				first = new(header)
				e.header, err = first, json.Unmarshal(line, first)
				e.at = first.Origin + first.Office.Start
			} else {
				err = json.Unmarshal(line, e.step)
				e.at = first.Origin + e.step.Now
			}
			events = append(events, e)
			return err
		}); err != nil {
			return 0, 0, err
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	c := New()
	for i := range events {
		if err := c.check(&events[i]); err != nil {
			return c.Steps, c.Tenures, fmt.Errorf("%s: at %d: %w", events[i].trace, events[i].at, err)
		}
	}
	return c.Steps, c.Tenures, nil
}
