package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/tracecheck"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// tracer passes what agents would write into their traces to a checker.
type tracer struct {
	*simulation

	checker *tracecheck.Checker
	boots   map[election.ID]int
	names   []string
	err     error
}

func newTracer(s *simulation) *tracer {
	t := &tracer{simulation: s, names: []string{""}}
	for id := range maxMembers {
		t.names = append(t.names, fmt.Sprint(id+1))
	}
	s.onBoot = func(id election.ID, c office.Config) {
		t.boots[id]++
		header := journal.TraceHeader{Agent: t.names[id], Names: t.names, Office: journal.TraceSettings{Config: c}}
		header.Office.Roster = journal.NewTraceStep(&journal.Record{Input: election.Input{Roster: c.Roster}}).Roster
		t.check(id, header)
	}
	s.onSettings = func(id election.ID, settings office.Settings) {
		now := t.processes[id].clock.local(t.queue.now)
		t.record(id, &journal.Record{Input: election.Input{Now: now}, Settings: &settings})
	}
	s.watch = func(step transcript.Step) {
		if step.Fault == "" {
			t.record(step.Process, &journal.Record{Input: step.Input, Send: step.Output.Send, Events: step.Output.Events})
		}
	}
	return t
}

func (t *tracer) record(id election.ID, r *journal.Record) {
	r.Status = t.processes[id].machine.Status()
	t.check(id, journal.NewTraceStep(r))
}

func (t *tracer) check(id election.ID, line any) {
	encoded, err := json.Marshal(line)
	if t.err == nil {
		t.err = cmp.Or(err, t.checker.Line(fmt.Sprint(id, " ", t.boots[id]), encoded, int64(t.queue.now)))
	}
}

// TestTracesFollowTheModel checks each step of a sample of schedules against rules that share no code with the core. It
// ignores the invariants of the simulator: the rules alone must find a bug.
func TestTracesFollowTheModel(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 10
	}
	for _, name := range catalog.Names() {
		for mode := office.Available; mode <= office.Strict; mode++ {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				algorithm, err := catalog.Find(name)
				must.Succeed(t, err)
				for size, faults := range map[int]string{5: "all", 2: "soak"} {
					possible, err := ParseFaults([]string{faults})
					must.Succeed(t, err)
					s, err := newSimulation(settings{algorithm: algorithm, mode: mode, size: size, faults: possible})
					must.Succeed(t, err)
					tracer, tenures := newTracer(s), 0
					for seed := range uint64(n) {
						tracer.checker, tracer.boots = tracecheck.New(), map[election.ID]int{}
						s.run(seed)
						if tracer.err != nil {
							t.Fatalf("faults %s, seed %d, model: %v", faults, seed, tracer.err)
						}
						tenures += tracer.checker.Tenures
					}
					if tenures < n {
						t.Errorf("got %d tenures in %d schedules, want more", tenures, n)
					}
				}
			})
		}
	}
}
