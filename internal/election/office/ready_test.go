package office_test

import (
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// The clock of the highest process is ahead of the others, which have just granted term 20 to the
// coordinator. It is ready for the office when a majority can grant term 21.
func TestProcessIsReadyWhenClocksOfMajorityAllowNextTerm(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
		h.configure = func(c *office.Config) {
			c.MemoryLost, c.Term, c.Coordinator, c.Policy = false, 20, 2, office.Always
			c.Clock = election.TermClock{AtBoot: 40, TicksPerEpoch: lease}
		}
		h.start(self, newRoster(t, 1, 1, 2, self), nil)
		h.advance(1)
		reportClocks := func(one, two election.Term) {
			for id, reading := range map[election.ID]election.Term{1: one, 2: two} {
				h.receive(id, election.Probe, 20, election.Hold{Held: true, Sent: h.now, RequesterLife: 1, HighestGranted: 20, Ceiling: reading})
			}
		}
		wantReady := func(want bool, clocks string) {
			t.Helper()
			h.receive(2, election.Beat, 20, election.Hold{Held: true, Sent: h.now})
			h.wantAnswer(2, election.Grant)
			expect.Equalf(t, h.captured[len(h.captured)-1].Hold.Ready, want, "%s: ready", clocks)
		}
		reportClocks(20, 20)
		wantReady(false, "clocks of both others behind")
		reportClocks(21, 20)
		wantReady(true, "clock of one other behind")
		reportClocks(20, 20)
		wantReady(false, "clocks of both others behind again")
		h.advance(lease - h.now)
		wantReady(false, "no later answers")
		reportClocks(21, 20)
		wantReady(true, "one term later")
		reportClocks(20, 20)
		reportClocks(0, 0)
		wantReady(true, "answers of an older release, which doesn't report its clock")
	})
}

// A process that the coordinator of lower rank hands over to on request only needs to know rarely which members it reaches.
func TestProbesAreRareWhereNobodyTakesOver(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for policy, want := range map[office.Policy]int{office.NeverPreempt: 2, office.WhenStable: 32} {
			probes := 0
			g := newGroup(t, mode, 1, newRoster(t, 1, 1, 2, 3), func(c *office.Config) { c.Policy, c.StablePeriod = policy, 100*lease })
			g.advance(2 * lease)
			g.drop = func(m *election.Message) bool {
				if m.Kind == election.Probe && m.From == 3 && m.To == 2 && !m.Hold.Held {
					probes++
				}
				return false
			}
			g.advance(32 * heartbeat)
			g.wantHolder(1)
			if probes != want {
				t.Errorf("policy %v: 3 probed 2 %d times in 32 heartbeats, want %d times", policy, probes, want)
			}
		}
	})
}

// The process of the highest rank exchanges messages with the coordinator only, which names it as successor otherwise.
func TestStepDownAvoidsProcessThatReachesNoMajority(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
		g.advance(2 * lease)
		g.drop = func(m *election.Message) bool { return m.From+m.To != 8 && (m.From == 5 || m.To == 5) }
		g.advance(10 * lease)
		g.step(3, election.Input{Kind: election.StepDown})
		g.advance(heartbeat)
		g.wantHolder(4)
	})
}

// The floor of the list is ahead of all clocks, so that their readings rise by an epoch in three
// seconds, and the term in force is the last one of an epoch. The reading of the highest process is ahead
// of the others by more than three epochs, and rises a second before the others reach the term that it needs.
func TestHandOverWaitsForSlowReadings(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		const reading, floor = 10_000_000, election.Epoch(10_000_300)
		g := &group{t: t, mode: mode}
		g.configure = func(c *office.Config) {
			c.Clock = election.TermClock{AtBoot: reading, TicksPerEpoch: second / 10}
			if c.Self == 3 {
				c.Clock.AtBoot += 100
			}
			c.Policy, c.Lease, c.Heartbeat, c.SuspicionTimeout, c.Stagger = office.Always, second/2, second/10, 2*second/5, second/20
			c.MemoryLost, c.Coordinator, c.Term = false, 2, (floor + 41).Last()
		}
		roster := newRoster(t, 2, 1, 2, 3).Succeed(newRoster(t, 1, 1, 2, 3), floor.Last())
		for _, m := range roster.Ring() {
			g.start(m.ID, roster, nil)
		}
		g.advance(1)
		g.wantHolder(2)
		vacant := 0
		for g.now < 6*second {
			g.advance(1)
			if len(g.holders()) == 0 {
				vacant++
			}
		}
		g.wantHolder(3)
		if vacant > int(second/5) {
			t.Errorf("got no coordinator for %d ms, want a fifth of a second at most", vacant)
		}
	})
}

// A rollout that goes on as soon as a restarted process has joined can take the coordinator: the process is its successor.
func TestProcessThatHasJoinedIsSuccessor(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		for _, remembers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/remembers_%t", mode, remembers), func(t *testing.T) {
				g := newGroup(t, mode, 2, newRoster(t, 1, 1, 2, 3), nil)
				g.advance(2 * lease)
				g.crash(3, true)
				restart := func(*office.Config) {}
				if remembers {
					restart = func(c *office.Config) { c.MemoryLost, c.Term = false, 1 }
				}
				g.start(3, newRoster(t, 1, 1, 2, 3), restart)
				for start := g.now; !g.machines[3].Joined(g.now); g.advance(1) {
					if g.now > start+lease+2*heartbeat {
						t.Fatal("got a process that doesn't join")
					}
				}
				g.step(2, election.Input{Kind: election.StepDown})
				g.advance(heartbeat)
				g.wantHolder(3)
			})
		}
	}
}

// In an OrderedReady StatefulSet, the next pod starts when the one before it is ready.
func TestProcessThatReachesNobodyJoinsAfterLease(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, remembers := range []bool{true, false} {
			g := &group{t: t, mode: mode}
			g.start(3, newRoster(t, 1, 1, 2, 3), func(c *office.Config) { c.MemoryLost = !remembers })
			wait := lease
			if !remembers {
				wait = 2 * lease
			}
			if g.advance(wait - 1); g.machines[3].Joined(g.now) {
				t.Errorf("remembers %t: got a process that has joined after %d ticks", remembers, g.now)
			}
			if g.advance(1); !g.machines[3].Joined(g.now) {
				t.Errorf("remembers %t: got a process that hasn't joined after %d ticks", remembers, g.now)
			}
		}
	})
}

// A coordinator doesn't count on a member that has another list.
func TestProcessJoinsHolderWithSameList(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
		h.start(self, newRoster(t, 2, 1, 2, self, 4, 5), func(c *office.Config) { c.MemoryLost, c.Term = false, 10 })
		for before, want := range []election.Kind{election.Deny, election.Grant} {
			h.receive(4, election.Beat, 10, election.Hold{Held: true, Sent: h.now, Version: uint32(before + 1)})
			h.wantAnswer(4, want)
			expect.Equalf(t, h.machines[self].Joined(h.now), want == election.Grant, "after a %v: joined", want)
		}
	})
}
