package sim_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/sim"
)

// Random schedules visit each combination of a fault, a role and a phase of a change of
// the member list.
func TestEveryCombinationIsVisited(t *testing.T) {
	report := sample(t, sim.Sampling{
		Algorithm: "StatusTable", Processes: 5, Safety: "Strict", Faults: []string{"all", "gone"}, Schedules: schedules(40_000), Seed: 1,
	})
	rare := map[sim.Combination]bool{
		{Fault: "leases", Role: "draining", List: "unknown"}: true,
		{Fault: "pause", Role: "draining", List: "unknown"}:  true,
		{Fault: "gone", Role: "draining", List: "unknown"}:   true,
	}
	for _, c := range report.Coverage {
		combination := c
		combination.Count = 0
		seldom := rare[combination] || testing.Short() && c.Role != "holder" // a short run has too few schedules
		if c.Count == 0 && !seldom {
			t.Errorf("no %s affected a %s, list %s", c.Fault, c.Role, c.List)
		}
	}
	if got := len(report.Coverage); got < 100 {
		t.Errorf("got %d combinations, want more than 100", got)
	}
}
