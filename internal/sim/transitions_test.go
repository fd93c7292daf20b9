package sim

import (
	"os"
	"testing"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/electiontest/transitions"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// visitedTransitions counts the transitions in random schedules.
func visitedTransitions(t *testing.T) map[transitions.Row]int {
	t.Helper()
	visited := map[transitions.Row]int{}
	record := func(v office.Transition) { visited[transitions.Of(v)]++ }
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
			for _, size := range []int{1, 3, 5} {
				s, err := newSimulation(settings{algorithm: algorithm, mode: mode, size: size, faults: allFaults, onTransition: record})
				must.Succeed(t, err)
				for seed := range uint64(schedulesPerCase()) {
					if v := s.run(seed); v != nil {
						t.Fatal(v)
					}
				}
			}
		}
	}
	return visited
}

// schedulesPerCase is the number of schedules of an election in a mode and of a size. A
// short run has too few to visit all transitions.
func schedulesPerCase() int {
	if testing.Short() {
		return 100
	}
	return 4000
}

// Random schedules visit each transition of the table in the package comment of
// office, and no other one.
func TestTransitionsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("../election/office/doc.go")
	must.Succeed(t, err)
	documented, err := transitions.Parse(string(source))
	must.Succeed(t, err)
	visited := visitedTransitions(t)
	for row := range documented {
		if visited[row] == 0 && !testing.Short() {
			t.Errorf("the table has %v, which never happened", row)
		}
	}
	for row, times := range visited {
		if !documented[row] {
			t.Errorf("the table lacks %v, which happened %d times", row, times)
		}
	}
}
