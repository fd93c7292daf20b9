package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
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

// claims reports whether process 3 has claimed the office in a term of an epoch.
func (h *harness) claims(epoch election.Epoch) bool {
	return slices.ContainsFunc(h.captured,
		func(m election.Message) bool { return m.Kind == election.Beat && m.Term.Epoch() == epoch })
}

// A process claims a term only if the clock of the other live member may reach it while the claim lasts. While that
// clock is behind the floor of the list, its reading hardly rises.
func TestClaimNeedsClocksOfMajority(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, c := range []struct {
			floor, reached, needs election.Epoch
			claims                bool
		}{{0, 2_010, 2_045, false}, {0, 2_043, 2_045, true}, {2_020, 2_022, 2_027, false}} {
			h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
			roster := newRoster(t, 1, 1, 2, self)
			roster.Floor = c.floor.First()
			h.start(self, roster, func(oc *office.Config) {
				oc.MemoryLost, oc.Term, oc.Coordinator = false, c.needs.First(), 2
				oc.Clock = election.TermClock{AtBoot: 2_050, TicksPerEpoch: lease / 5, ListFloor: c.floor.First()}
			})
			h.receive(1, election.Probe, 0,
				election.Hold{Held: true, RequesterLife: 1, HighestGranted: 1, Ceiling: c.reached.Last()})
			h.input(self, election.Input{Kind: election.Ended, Peer: 2, Life: 1})
			h.advance(stagger)
			if got := h.claims(c.needs); got != c.claims {
				t.Errorf("floor of epoch %d, clock that permits epoch %d: got a claim of epoch %d: %t, want %t", c.floor,
					c.reached, c.needs, got, c.claims)
			}
		}
	})
}

// A claim is given up after two heartbeats if the clocks of the other members won't reach its term before it ends.
func TestClaimIsGivenUpIfClocksDontReachIt(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, epoch := range []election.Epoch{30, 40} {
			h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
			h.start(self, newRoster(t, 1, 1, 2, self), func(c *office.Config) {
				c.MemoryLost, c.Term, c.Coordinator = false, election.Epoch(40).First(), self
				c.Clock = election.TermClock{AtBoot: 45, TicksPerEpoch: lease}
			})
			h.advance(1)
			resigned := 0
			for range 3 * heartbeat {
				h.receive(1, election.Deny, 0, election.Hold{Ceiling: epoch.Last()})
				h.receive(2, election.Deny, 0, election.Hold{Ceiling: epoch.Last()})
				h.advance(1)
				resigned += h.countSent(election.Resigned)
			}
			expect.Equalf(t, resigned > 0, epoch == 30,
				"clocks permit epoch %d: claim of epoch 40 given up within three heartbeats", epoch)
		}
	})
}

// A process that adopts a list knows the clocks of members that have adopted it before.
func TestClocksOfMembersThatAdoptedListFirst(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, above := range []election.Epoch{0, 1} {
			h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
			h.start(self, newRoster(t, 1, 2, self), func(c *office.Config) {
				c.MemoryLost, c.Term, c.Coordinator = false, 20, 2
				c.Clock = election.TermClock{AtBoot: 3_000, TicksPerEpoch: lease}
			})
			h.advance(1)
			h.receive(2, election.Probe, 0, election.Hold{Held: true, RequesterLife: 1, HighestGranted: election.Epoch(
				2_002).Last(), Ceiling: (2_000 + above).Last()})
			next := newRoster(t, 2, 2, self)
			next.Floor = election.Epoch(2_000).Last()
			h.input(self, election.Input{Kind: election.Adopt, Roster: next})
			receiveResigned(h, 2, 20, election.None, election.Hold{})
			h.advance(3 * stagger)
			expect.Equalf(t, h.claims(2_003), above == 0,
				"clock of the other member was %d epochs above the floor: claim of the third one above it", above)
		}
	})
}

// Processes 4, which leads, and 5 have adopted a list before the others, which can't grant a term above its floor yet.
// So there is no hand-over.
func TestHandOverWaitsForListOfMajority(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		const reading = 10_000
		g := newGroup(t, mode, 4, newRoster(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) {
			c.Policy, c.Term, c.Clock = office.Always, election.Epoch(reading-1).First(),
				election.TermClock{AtBoot: reading, TicksPerEpoch: lease / 12}
		})
		g.input(5, election.Input{Kind: election.BecomeIneligible})
		g.advance(heartbeat)
		next := newRoster(t, 2, 1, 2, 3, 4, 5).Succeed(newRoster(t, 1, 1, 2, 3, 4, 5), election.NextFloor(0, reading))
		g.adopt(next, 4, 5)
		g.advance(heartbeat)
		g.input(5, election.Input{Kind: election.BecomeEligible})
		for range 3 * lease {
			g.advance(1)
			g.wantHolder(4)
		}
		g.adopt(next, 1, 2, 3)
		g.advance(3 * lease)
		g.wantHolder(5)
	})
}
