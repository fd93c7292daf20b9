package office_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// A rollout replaces five pods, one at a time as fast as they follow the coordinator. It changes the coordinator twice
// at most: when its pod is replaced, and when the highest process is ready again. New pods take a lease or longer to
// start. Agents that restart in their pods may take less time: they remember what they granted.
func TestRolloutChangesCoordinatorTwice(t *testing.T) {
	orders := [][]election.ID{{5, 4, 3, 2, 1}, {1, 2, 3, 4, 5}, {1, 2, 5, 4, 3}, {1, 5, 4, 3, 2}, {3, 5, 1, 4, 2}, {5, 1, 2, 3, 4}}
	for _, policy := range []office.Policy{office.Always, office.WhenStable, office.NeverPreempt} {
		for _, down := range []election.Tick{heartbeat, lease} {
			t.Run(fmt.Sprintf("policy %d, %d ticks", policy, down), func(t *testing.T) {
				inEachMode(t, func(t *testing.T, mode office.Mode) {
					for _, order := range orders {
						roster := newRoster(t, 1, 1, 2, 3, 4, 5)
						g := newGroup(t, mode, 5, roster, func(c *office.Config) { c.Policy = policy })
						g.advance(lease)
						before := len(g.tokens)
						for _, id := range order {
							if slices.Equal(g.holders(), []election.ID{id}) {
								g.input(id, election.Input{Kind: election.StepDown})
								g.advance(1)
							}
							g.crash(id, true)
							g.advance(down)
							g.start(id, roster, func(c *office.Config) {
								c.EarlierEnded, c.MemoryLost = down, down == lease || mode == office.Available
							})
							g.input(id, election.Input{Kind: election.Recover})
							for limit := g.now + lease; g.machines[id].Status().Coordinator == election.None && g.now < limit; {
								g.advance(1)
							}
						}
						g.advance(10 * stablePeriod)
						if changes := len(g.tokens) - before; changes > 2 {
							t.Errorf("order %d: got %d changes of the coordinator, want 2 at most", order, changes)
						}
					}
				})
			})
		}
	}
}
