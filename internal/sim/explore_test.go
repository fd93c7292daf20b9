package sim_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/sim"
)

// explore visits all states of a world and fails the test with the path to the
// first violation.
func explore(t *testing.T, x sim.Exploration) {
	t.Helper()
	found, err := sim.Explore(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	if v := found.Violation; v != nil {
		t.Errorf("%s: %s, by way of", v.Invariant, v.Detail)
		for _, choice := range found.Path {
			t.Log(choice)
		}
		return
	}
	if !found.Complete {
		t.Errorf("only %d states were visited before the bound", found.States)
	}
	t.Logf("%d states, %d transitions, %d ends", found.States, found.Transitions, found.Ends)
}

// Three processes, two crashes at any steps, one of them comes back: in every
// interleaving everyone agrees on the highest in the end.
func TestEveryInterleavingOfThree(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			explore(t, sim.Exploration{Algorithm: algorithm, Processes: 3, Crashes: 2, Restarts: 1})
		})
	}
}

func TestEveryInterleavingOfFour(t *testing.T) {
	if testing.Short() {
		t.Skip("the worlds of three are enough for a short run")
	}
	for _, algorithm := range catalog.Names() {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			crashes := 2
			if algorithm == "Bully" {
				crashes = 1 // with two, more than a million states
			}
			explore(t, sim.Exploration{Algorithm: algorithm, Processes: 4, Crashes: crashes, Restarts: 1})
		})
	}
}

// The office around an election, with a crash at any step: in no interleaving do
// two hold it, and tokens rise.
func TestEveryInterleavingOfAnOffice(t *testing.T) {
	for _, algorithm := range catalog.Names() {
		for _, mode := range modes {
			t.Run(algorithm+"/"+mode, func(t *testing.T) {
				t.Parallel()
				restarts := 0
				if mode == "Available" || algorithm == "StatusTable" && !testing.Short() {
					restarts = 1
				}
				explore(t, sim.Exploration{Algorithm: algorithm, Processes: 3, Safety: mode, Crashes: 1, Restarts: restarts})
			})
		}
	}
}
