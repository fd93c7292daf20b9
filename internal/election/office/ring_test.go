package office_test

import (
	"maps"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Seed 000: "the control part of a failed process continues to function and simply
// forwards each received message along its out-edge". Here that is 4, whose
// application is dead, as everyone knows: it isn't elected and keeps the ring
// whole. The dead pod, 5, is skipped.
func TestAnApplicationThatDiedBesideItsAgentKeepsTheRingWhole(t *testing.T) {
	for algorithm, want := range map[string]map[election.Kind]int{
		"RingAllIDs":     {election.ElectMe: 3 * 4, election.NewCoordinator: 4},
		"RingChampion":   {election.ElectMe: 4, election.NewCoordinator: 4},
		"RingActiveList": {election.Elect: 3 * 4},
		"RingSkip":       {election.Election: 4, election.Coordinator: 4},
	} {
		t.Run(algorithm, func(t *testing.T) {
			ring, err := catalog.Find(algorithm)
			if err != nil {
				t.Fatal(err)
			}
			guarded(t, func(t *testing.T, mode office.Mode) {
				w := settle(t, mode, 5, list(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) { c.NewElection = ring.New })
				w.tell(4, election.Input{Kind: election.BecomeIneligible})
				w.pass(3 * heartbeat)
				sent := map[election.Kind]int{}
				w.cut = func(m *election.Message) bool {
					if m.Kind.Counts() {
						sent[m.Kind]++
					}
					return false
				}
				w.crash(5, true)
				w.pass(lease + patience)
				w.wantHolder(3)
				w.wantFollowed(3, 1, 2, 3, 4)
				if !maps.Equal(sent, want) {
					t.Errorf("sent %v, want %v", sent, want)
				}
			})
		})
	}
}
