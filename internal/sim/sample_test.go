package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

var modes = []string{"Available", "Majority", "Strict"}

// sample runs schedules and fails the test with the command that replays the first violation.
func sample(t *testing.T, s sim.Sampling) sim.Report {
	t.Helper()
	s.MaxViolations = 1
	report, err := sim.Sample(t.Context(), s)
	must.Succeed(t, err)
	for _, v := range report.Violations {
		t.Errorf("%s: %s\nreplay: kubectl conclave simulate --algorithm %s --processes %d --safety %s --faults "+
			"%s --schedules 1 --seed %d",
			v.Invariant, v.Detail, s.Algorithm, s.Processes, s.Safety, strings.Join(s.Faults, ","), v.Seed)
	}
	return report
}

func schedules(full int) int {
	if testing.Short() {
		return full / 10
	}
	return full
}

// With all faults, no algorithm violates an invariant in any mode.
func TestSchedulesWithAllFaults(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		for _, mode := range modes {
			t.Run(algorithm+"/"+mode, func(t *testing.T) {
				t.Parallel()
				n := schedules(4000)
				report := sample(t, sim.Sampling{
					Algorithm: algorithm, Processes: 5, Safety: mode, Faults: []string{"all"}, Schedules: n, Seed: 1,
				})
				if !t.Failed() && report.Schedules != n {
					t.Errorf("got %d schedules, want %d", report.Schedules, n)
				}
			})
		}
	}
}

// Each fault alone, so that no fault hides the effects of another one.
func TestSchedulesWithEachFault(t *testing.T) {
	all := sim.FaultNames()
	for _, fault := range all[:slices.Index(all, "gone")] {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			n := schedules(2000)
			if fault == "deep" {
				n /= 5 // each takes as long as ten others
			}
			for _, mode := range modes {
				sample(t, sim.Sampling{
					Algorithm: "StatusTable", Processes: 4, Safety: mode, Faults: []string{fault}, Schedules: n, Seed: 1,
				})
			}
		})
	}
}

// Strict doesn't rely on reports that a process has ended. Majority does: there, false
// reports lead to two coordinators.
func TestStrictIgnoresFalseReports(t *testing.T) {
	s := sim.Sampling{
		Algorithm: "StatusTable", Processes: 5, Safety: "Strict", Faults: []string{"all", "gone"},
		Schedules: schedules(4000), Seed: 1,
	}
	sample(t, s)
	s.Safety, s.Faults, s.Schedules = "Majority", []string{"gone"}, 400
	report, err := sim.Sample(t.Context(), s)
	must.Succeed(t, err)
	if report.Violated == 0 || report.Violations[0].Invariant != "one holder" {
		t.Errorf("got violations %v of Majority, want one of one holder", report.Violations)
	}
}

// All small groups, including those of one and two processes, where all members form the only majority.
func TestSchedulesOfEverySize(t *testing.T) {
	for n := 1; n <= 9; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			for _, mode := range modes {
				sample(t, sim.Sampling{
					Algorithm: "Bully", Processes: n, Safety: mode, Faults: []string{"all"}, Schedules: schedules(1000), Seed: 1,
				})
			}
		})
	}
}

// A group so large that a PROBE is not sent to all members at once.
func TestSchedulesOfALargeGroup(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			sample(t, sim.Sampling{
				Algorithm: "StatusTable", Processes: 20, Safety: mode, Faults: []string{"all"}, Schedules: schedules(400), Seed: 1,
			})
		})
	}
}

// Two runs of a seed have the same steps.
func TestSeedReplays(t *testing.T) {
	trace := func() string {
		var b strings.Builder
		sample(t, sim.Sampling{
			Algorithm: "RingSkip", Processes: 5, Safety: "Majority", Faults: []string{"all"}, Schedules: 20, Seed: 7,
			Watch: func(s transcript.Step) {
				fmt.Fprintln(&b, s.At, s.Process, s.Fault, s.Input.Describe())
				if s.Fault != "" {
					return
				}
				for _, m := range s.Output.Send {
					fmt.Fprintln(&b, m.Describe())
				}
			},
		})
		return b.String()
	}
	first, second := trace(), trace()
	if first != second || !strings.Contains(first, "ELECTION") {
		t.Errorf("got two runs of %d and %d bytes, want equal ones with an ELECTION", len(first), len(second))
	}
}

// Without faults, there is no cause for an election, although the delays of messages vary. Members with another lease
// grant each other.
func TestNoElectionWithoutFaults(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		for _, faults := range [][]string{nil, {"grow"}, {"settings"}} {
			sample(t, sim.Sampling{
				Algorithm: algorithm, Processes: 5, Safety: "Majority", Faults: faults, Schedules: schedules(500), Seed: 1,
			})
		}
	}
}

func TestInvalidSamplings(t *testing.T) {
	good := sim.Sampling{Algorithm: "Bully", Processes: 5, Schedules: 1}
	for want, change := range map[string]func(*sim.Sampling){
		"choose one of Bully":       func(s *sim.Sampling) { s.Algorithm = "Raft" },
		"1 to 20 processes":         func(s *sim.Sampling) { s.Processes = 10_000_000 },
		"schedules must be":         func(s *sim.Sampling) { s.Schedules = 0 },
		"choose Available":          func(s *sim.Sampling) { s.Safety = "Safe" },
		"choose all, soak, or some": func(s *sim.Sampling) { s.Faults = []string{"fire"} },
	} {
		s := good
		change(&s)
		_, err := sim.Sample(t.Context(), s)
		expect.ErrorContainsf(t, err, want, "sample")
	}
}
