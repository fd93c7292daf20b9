package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestSeedsThatFoundBugs runs schedules that violate an invariant if the code has a certain bug, and are too rare for a
// short sampling. TestMutantsAreCaught injects the bugs. With later changes of the elections, some of these schedules
// have another history, and another test catches the bug. A line of the file has the algorithm, the safety mode, the
// number of processes, the seed, the faults, and what the schedule detects.
func TestSeedsThatFoundBugs(t *testing.T) {
	for line := range strings.Lines(string(must.ReadFile(t, "testdata/seeds.txt"))) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 6)
		t.Run(words[5], func(t *testing.T) {
			s := sim.Sampling{Algorithm: words[0], Safety: words[1], Schedules: 1}
			_, err := fmt.Sscan(words[2]+" "+words[3], &s.Processes, &s.Seed)
			must.Succeed(t, err)
			s.Faults = strings.Split(words[4], ",")
			sample(t, s)
		})
	}
}
