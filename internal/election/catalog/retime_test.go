package catalog_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestTimingCanChange checks that the next election uses the new timing, and
// that an invalid timing changes nothing.
func TestTimingCanChange(t *testing.T) {
	for _, algorithm := range catalog.All() {
		t.Run(algorithm.Name, func(t *testing.T) {
			wait := func(timings ...election.Timing) election.Tick {
				roster, err := election.NewRoster(1, []election.Member{{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: 3, Priority: 3}})
				must.Succeed(t, err)
				m, err := algorithm.New(election.Config{Self: 1, Roster: roster, Timing: election.DefaultTiming(2, 1)})
				must.Succeed(t, err)
				var out election.Output
				for _, timing := range timings {
					m.Step(election.Input{Kind: election.Retime, Timing: &timing}, &out)
				}
				m.Step(election.Input{Kind: election.Retime}, &out)
				m.Step(election.Input{Kind: election.Campaign, Term: 1}, &out)
				return m.Deadline()
			}
			short, long := wait(), wait(election.DefaultTiming(20, 10))
			if long <= 8*short {
				t.Errorf("delays ten times as long: got a wait of %d, want more than 8 times %d", long, short)
			}
			expect.Equalf(t, wait(election.Timing{Reply: 100, Takeover: 1, Hop: 100}), short, "invalid timing: wait")
		})
	}
}
