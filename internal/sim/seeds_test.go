package sim_test

import (
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/sim"
)

// seeds are schedules that have violated something while a bug was in the code,
// and don't any more.
var seeds = []struct {
	shows     string
	algorithm string
	mode      string
	processes int
	seed      uint64
}{}

func TestSeedsThatFoundBugs(t *testing.T) {
	for _, s := range seeds {
		t.Run(fmt.Sprint(s.algorithm, s.seed), func(t *testing.T) {
			sample(t, sim.Sampling{
				Algorithm: s.algorithm, Processes: s.processes, Safety: s.mode, Faults: []string{"all"}, Schedules: 1, Seed: s.seed,
			})
		})
	}
}
