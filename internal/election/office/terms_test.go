package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The clocks of 1 and of the coordinator 3 are ahead of that of 2. Process 1 restarts and runs its
// recovery procedure, which 3 wins in a term that 2 can't grant yet. Later 1 crashes, and 3 loses the office
// because it was cut off for a moment. Then 3 doesn't need that term.
func TestFailoverDoesntWaitForTermOfRecovery(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, recovers := range []bool{false, true} {
			g := newSkewedGroup(t, mode, map[election.ID]election.Epoch{1: 20, 3: 20})
			roster := newRoster(t, 1, 1, 2, 3)
			for _, m := range roster.Ring() {
				g.start(m.ID, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 1, 3 })
			}
			g.advance(second)
			g.wantHolder(3)
			g.crash(1, true)
			g.advance(second)
			g.start(1, roster, nil)
			if recovers {
				g.input(1, election.Input{Kind: election.Recover})
			}
			g.advance(2 * second)
			g.wantHolder(3)
			g.crash(1, true)
			g.advance(second)
			g.drop = func(m *election.Message) bool { return crosses(m, 3) }
			g.advance(second)
			g.wantHolder(election.None)
			g.drop = nil
			if took := g.untilHolder(60 * second); took > 2*second {
				t.Errorf("recovers %t: got the next holder after %d ms, want less than two seconds", recovers, took)
			}
		}
	})
}

// Process 1 restarts again and again, and runs its recovery procedure each time. That
// concerns neither the coordinator nor the highest process.
func TestRestartsOfOtherDontDelayHandOver(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, restarts := range []bool{false, true} {
			g := newSkewedGroup(t, mode, nil)
			clocks := g.configure
			g.configure = func(c *office.Config) {
				clocks(c)
				c.Policy, c.StablePeriod = office.WhenStable, 10*second
			}
			roster := newRoster(t, 1, 1, 2, 3, 4, 5)
			for _, id := range []election.ID{1, 2, 3, 4} {
				g.start(id, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 1, 4 })
			}
			g.advance(second)
			g.wantHolder(4)
			g.start(5, roster, nil)
			g.input(5, election.Input{Kind: election.Recover})
			for range 20 {
				g.advance(3 * second)
				if restarts {
					g.crash(1, true)
					g.advance(second)
					g.start(1, roster, nil)
					g.input(1, election.Input{Kind: election.Recover})
				}
			}
			if g.countEvents(5, election.TenureStarted) == 0 {
				t.Errorf("restarts %t: process 5 hasn't become coordinator within %d s", restarts, g.now/second)
			}
		}
	})
}

// A process that wins an election claims the office only if its own clock reaches the term while it claims it.
func TestClaimAfterElectionNeedsOwnClock(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, epoch := range []election.Epoch{40, 41} {
			h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
			h.start(self, newRoster(t, 1, 1, 2, self), func(c *office.Config) {
				c.MemoryLost, c.Term, c.Coordinator = false, 20, 2
				c.Clock = election.TermClock{AtBoot: 40, TicksPerEpoch: 10 * lease}
			})
			h.input(self, election.Input{Kind: election.Ended, Peer: 2, Life: 1})
			h.receive(1, election.Election, epoch.First(), election.Hold{})
			h.advance(stagger)
			claimed := func(m election.Message) bool { return m.Kind == election.Beat && m.Term.Epoch() == epoch }
			if claims := slices.ContainsFunc(h.captured, claimed); claims != (epoch == 40) {
				t.Errorf("the clock permits epoch 40: got claims of a term of epoch %d: %t", epoch, claims)
			}
		}
	})
}
