package office_test

import (
	"maps"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// [Textbook]: "the control part of a failed process continues to function and simply forwards each received message
// along its out-edge". Here that is process 4, whose application is dead, as all processes know. It isn't elected and
// forwards messages. The dead pod, 5, is skipped.
func TestRingSendsThroughProcessWithDeadApplication(t *testing.T) {
	for algorithm, want := range map[string]map[election.Kind]int{
		"RingAllIDs":     {election.ElectMe: 3 * 4, election.NewCoordinator: 4},
		"RingChampion":   {election.ElectMe: 4, election.NewCoordinator: 4},
		"RingActiveList": {election.Elect: 3 * 4},
		"RingSkip":       {election.Election: 4, election.Coordinator: 4},
	} {
		t.Run(algorithm, func(t *testing.T) {
			ring, err := catalog.Find(algorithm)
			must.Succeed(t, err)
			inGrantModes(t, func(t *testing.T, mode office.Mode) {
				g := newGroup(t, mode, 5, newRoster(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) { c.NewElection = ring.New })
				g.input(4, election.Input{Kind: election.BecomeIneligible})
				g.advance(3 * heartbeat)
				sent := map[election.Kind]int{}
				g.drop = func(m *election.Message) bool {
					if m.Kind.Counts() {
						sent[m.Kind]++
					}
					return false
				}
				g.crash(5, true)
				g.advance(lease + suspicionTimeout)
				g.wantHolder(3)
				g.wantFollowed(3, 1, 2, 3, 4)
				if !maps.Equal(sent, want) {
					t.Errorf("got messages %v, want %v", sent, want)
				}
			})
		})
	}
}
