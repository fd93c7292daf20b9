package sim_test

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/sim"
)

// seeds are schedules that violate something while a bug is in the code: each is
// rare enough for a short sampling to miss. mutants_test.go puts the bugs there.
var seeds = []struct {
	shows     string
	algorithm string
	mode      string
	faults    string
	seed      uint64
}{
	{"a late resignation", "StatusTable", "Majority", "delay,reorder,duplicate,partition,stepdown", 2376},
	{"a list that is adopted too early", "StatusTable", "Strict", "crash,pause,partition,members", 58902},
	{"a term that was used before", "StatusTable", "Available", "delay,crash,partition", 149},
	{"a dead application that stands again", "StatusTable", "Majority", "appdead,stepdown", 370},
	{"a grant after a restart", "StatusTable", "Majority", "crash,partition", 38142},
	{"the old member list", "StatusTable", "Majority", "crash,partition,members", 1135},
}

func TestSeedsThatFoundBugs(t *testing.T) {
	for _, s := range seeds {
		t.Run(s.shows, func(t *testing.T) {
			sample(t, sim.Sampling{
				Algorithm: s.algorithm, Processes: 5, Safety: s.mode, Faults: strings.Split(s.faults, ","),
				Schedules: 1, Seed: s.seed,
			})
		})
	}
}
