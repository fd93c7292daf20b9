package sim

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/diagram"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// resurfacingSeed found that a process that resigned reported the coordinator of which it
// had learned before its own tenure.
const resurfacingSeed = 15674

// Restarted processes run the recovery of their algorithm. No schedule violates an
// invariant: there still is at most one coordinator, and always one in the end.
func TestSchedulesWithRecovery(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds /= 10
	}
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
			t.Run(algorithm.Name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				s, err := newSimulation(settings{algorithm: algorithm, mode: mode, size: 5, faults: allFaults | Recovery})
				must.Succeed(t, err)
				began, learned := 0, 0
				s.watch = func(step diagram.Step) {
					if step.Output == nil {
						return
					}
					if step.Input.Kind == election.Recover {
						began++
					}
					for _, e := range step.Output.Events {
						if e.Kind == election.Learned {
							learned++
						}
					}
				}
				for seed := range seeds + 1 {
					if seed == seeds {
						seed = resurfacingSeed
					}
					if v := s.run(seed); v != nil {
						t.Fatalf("seed %d: %s: %s", seed, v.Invariant, v.Detail)
					}
				}
				// In Available mode, the process follows the BEAT with which the coordinator welcomes it.
				asks := mode != office.Available && (algorithm.Name == "StatusTable" || algorithm.Name == "RingActiveList")
				if began == 0 || asks && learned == 0 {
					t.Errorf("got %d recoveries, in %d of which the answer named the coordinator, want some", began, learned)
				}
			})
		}
	}
}
