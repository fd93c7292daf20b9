package sim_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/sim"
)

// The message counts for ten processes of which the tenth has crashed and the fourth
// starts the election: see docs/algorithms.
func TestMessageCountsOfTen(t *testing.T) {
	for algorithm, want := range map[string]map[election.Kind]int{
		"Bully":          {election.Election: 20, election.OK: 15, election.Coordinator: 8},
		"StatusTable":    {election.Election: 1, election.OK: 1, election.Coordinator: 8},
		"RingAllIDs":     {election.ElectMe: 90, election.NewCoordinator: 10},
		"RingChampion":   {election.ElectMe: 15, election.NewCoordinator: 10},
		"RingActiveList": {election.Elect: 81},
		"RingSkip":       {election.Election: 9, election.Coordinator: 9},
	} {
		t.Run(algorithm, func(t *testing.T) {
			outcome, err := sim.Run(sim.Scenario{
				Algorithm: algorithm, Processes: 10, Latency: sim.Millisecond,
				Crashed: []election.ID{10}, Initiators: []election.ID{4},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !outcome.Agreed || outcome.Coordinator != 9 {
				t.Errorf("got coordinator %d and agreement %t, want 9 and true", outcome.Coordinator, outcome.Agreed)
			}
			for _, kind := range election.Kinds() {
				if got := outcome.Messages[kind]; got != want[kind] {
					t.Errorf("%s: got %d messages, want %d", kind, got, want[kind])
				}
			}
		})
	}
}
