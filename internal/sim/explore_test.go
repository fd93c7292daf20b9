package sim_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// explore visits all states and fails the test with the path to the first violation.
func explore(t *testing.T, x sim.Exploration) {
	t.Helper()
	found, err := sim.Explore(x)
	must.Succeed(t, err)
	if v := found.Violation; v != nil {
		t.Errorf("%s: %s, after these moves:", v.Invariant, v.Detail)
		for _, move := range found.Path {
			t.Log(move)
		}
		return
	}
	t.Logf("%d states, %d transitions, %d terminal states", found.States, found.Transitions, found.TerminalStates)
}

// Three processes with two crashes at any step and one restart: every interleaving ends with an agreement on the
// highest live process, and that agreement can be reached from every state without further faults.
func TestEveryInterleavingOfThree(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			explore(t, sim.Exploration{Algorithm: algorithm, Processes: 3, Crashes: 2, Restarts: 1})
		})
	}
}

func TestEveryInterleavingOfFour(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && algorithm != "RingChampion" {
				t.Skip("a short run explores groups of four with RingChampion only")
			}
			exploration := sim.Exploration{Algorithm: algorithm, Processes: 4, Crashes: 2, Restarts: 1}
			switch algorithm {
			case "Bully":
				exploration.Crashes = 1 // two make more than a million states
			case "RingAllIDs":
				// A second crash may lose the message with the highest identifier. [Textbook]
				// assumes that no process fails during an election.
				exploration.CrashOnlyWhenIdle = true
				explore(t, sim.Exploration{Algorithm: algorithm, Processes: 4, Crashes: 1, Restarts: 1})
			}
			explore(t, exploration)
		})
	}
}

// Offices with a crash at any step and the loss of any one message, which may be combined: in every interleaving there
// is at most one holder, tokens increase, and from every state the highest live process can still acquire the office.
func TestEveryInterleavingOfOffices(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		for _, mode := range modes {
			t.Run(algorithm+"/"+mode, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && algorithm != "Bully" && algorithm != "StatusTable" {
					t.Skip("a short run explores the rings only in Available mode, with a restart")
				}
				x := sim.Exploration{Algorithm: algorithm, Processes: 3, Safety: mode, Crashes: 1, Losses: 1}
				if mode == "Available" && (algorithm == "RingAllIDs" || algorithm == "RingActiveList") {
					x.Rounds = true // otherwise there are hundreds of thousands of states
					explore(t, sim.Exploration{Algorithm: algorithm, Processes: 3, Safety: mode, Crashes: 1})
				}
				explore(t, x)
			})
		}
	}
}

// Offices with a crash and a restart at any step. In rounds there are tens of thousands of states instead of a million.
func TestEveryRoundOfOfficesWithRestart(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		for _, mode := range modes {
			t.Run(algorithm+"/"+mode, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && mode != "Available" {
					t.Skip("a short run explores restarts in Available mode only")
				}
				explore(t, sim.Exploration{Algorithm: algorithm, Processes: 3, Safety: mode, Crashes: 1, Restarts: 1, Rounds: true})
			})
		}
	}
}

// Explore finds a state from which agreement can't be reached, and the moves that
// lead to it: the message with the highest identifier is lost in a crash.
func TestExploreFindsDeadEnd(t *testing.T) {
	found, err := sim.Explore(sim.Exploration{Algorithm: "RingAllIDs", Processes: 4, Crashes: 2})
	must.Succeed(t, err)
	if found.Violation == nil || found.Violation.Invariant != "agreement" || len(found.Path) == 0 {
		t.Errorf("got violation %+v after %d moves, want one of agreement and the moves that lead to it",
			found.Violation, len(found.Path))
	}
}
