package office_test

import (
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// A process that outranks the coordinator is ready for the office when it may claim the next term that a majority can
// grant: one of its list.
func TestProcessIsReadyWhenMajorityCanGrantTermOfItsList(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newHarness(t, mode, nil)
		h.start(self, newRoster(t, 1, 1, 2, self),
			func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, term(20), 2 })
		h.advance(1)
		wantReady := func(want bool, one, two election.Term) {
			t.Helper()
			for id, granted := range map[election.ID]election.Term{1: one, 2: two} {
				h.receive(id, election.Probe, term(20),
					election.Hold{Held: true, Sent: h.now, RequesterLife: 1, HighestGranted: granted})
			}
			h.receive(2, election.Beat, term(20), election.Hold{Held: true, Sent: h.now})
			h.wantAnswer(2, election.Grant)
			expect.Equalf(t, h.captured[len(h.captured)-1].Hold.Ready, want,
				"the others have granted %d and %d: ready", one, two)
		}
		wantReady(true, term(20), term(20))
		wantReady(false, termOf(2, 1), election.LastTerm(1))
		wantReady(true, termOf(2, 1), term(20))
	})
}

// A process that the coordinator of lower rank hands over to on request only needs to know rarely which members it
// reaches.
func TestProbesAreRareWhereNobodyTakesOver(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for policy, want := range map[office.Policy]int{office.NeverPreempt: 2, office.WhenStable: 32} {
			probes := 0
			g := newGroup(t, mode, 1, newRoster(t, 1, 1, 2, 3),
				func(c *office.Config) { c.Policy, c.StablePeriod = policy, 100*lease })
			g.advance(2 * lease)
			g.drop = func(m *election.Message) bool {
				if m.Kind == election.Probe && m.From == 3 && m.To == 2 && !m.Hold.Held {
					probes++
				}
				return false
			}
			g.advance(32 * heartbeat)
			g.wantHolder(1)
			expect.Equalf(t, probes, want, "policy %v: probes of 3 to 2 in 32 heartbeats", policy)
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

// A rollout that goes on as soon as a restarted process has joined can take the coordinator: the process is its
// successor.
func TestProcessThatHasJoinedIsSuccessor(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		for _, remembers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/remembers_%t", mode, remembers), func(t *testing.T) {
				g := newGroup(t, mode, 2, newRoster(t, 1, 1, 2, 3), nil)
				g.advance(2 * lease)
				g.crash(3, true)
				restart := func(*office.Config) {}
				if remembers {
					restart = func(c *office.Config) { c.MemoryLost, c.Term = false, term(1) }
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
		h := newHarness(t, mode, nil)
		h.start(self, newRoster(t, 2, 1, 2, self, 4, 5), func(c *office.Config) { c.MemoryLost, c.Term = false, term(10) })
		for before, want := range []election.Kind{election.Deny, election.Grant} {
			h.receive(4, election.Beat, term(10), election.Hold{Held: true, Sent: h.now, Version: uint32(before + 1)})
			h.wantAnswer(4, want)
			expect.Equalf(t, h.machines[self].Joined(h.now), want == election.Grant, "after a %v: joined", want)
		}
	})
}

func receiveResigned(h *harness, from election.ID, term election.Term, successor election.ID, hold election.Hold) {
	h.send(election.Message{Kind: election.Resigned, From: from, Term: term, Subject: successor, Hold: hold})
}

// TestNamedSuccessorNeedsNoElection: process 3 claims the office in the same step in which 4 resigns in its favor, and
// doesn't send ELECTION to 5, which outranks it.
func TestNamedSuccessorNeedsNoElection(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	receiveResigned(h, 4, term(10), self, election.Hold{Ineligible: true})
	if h.countSent(election.Beat) != 4 || h.countSent(election.Election) != 0 {
		t.Errorf("got %d BEATs and %d ELECTIONs, want 4 and none", h.countSent(election.Beat), h.countSent(election.Election))
	}
	for _, m := range h.captured {
		if m.Kind == election.Beat && m.Term != term(11) {
			t.Errorf("got a claim of term %d, want 11", m.Term)
		}
	}
}

// TestIneligibleProcessIsNotWaitedFor: the coordinator has reported that 5 is
// ineligible, and resigns because it is ineligible itself. So 3 is the highest.
func TestIneligibleProcessIsNotWaitedFor(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	report, hold := []election.ID{2, election.None, 5}, election.Hold{Version: 1, Held: true}
	h.pass(election.Message{Kind: election.Beat, From: 4, Term: term(10), List: report, Hold: hold})
	receiveResigned(h, 4, term(10), election.None, election.Hold{Ineligible: true})
	if h.countSent(election.Beat) == 0 {
		t.Errorf("got %v, want a claim of 3 at once", h.captured)
	}

	again := newFollower(t, office.Majority, nil)
	receiveResigned(again, 4, term(10), election.None, election.Hold{})
	expect.Equalf(t, again.countSent(election.Beat), 0, "claims of 3 while 4 and 5 are eligible")
}

// TestOnlyMembersAreReportedAsIneligible: a coordinator reported a process that isn't a member. The next one doesn't.
func TestOnlyMembersAreReportedAsIneligible(t *testing.T) {
	h := newHarness(t, office.Available, nil)
	h.start(self, newRoster(t, 1, 1, self, 5), func(c *office.Config) { c.MemoryLost = false })
	report, hold := []election.ID{election.None, 1, 2}, election.Hold{Version: 1, Held: true}
	h.send(election.Message{Kind: election.Beat, From: 5, Term: term(10), List: report, Hold: hold})
	h.captured = nil
	h.input(self, election.Input{Kind: election.Ended, Peer: 5, Life: 1})
	h.wantHolder(self)
	expect.EqualSlicesf(t, h.captured[len(h.captured)-1].List, []election.ID{5, election.None, 1}, "list of the BEAT")
}

// TestProcessThatIsEligibleAgainIsWaitedFor: 5 was ineligible, and has sent a message since.
func TestProcessThatIsEligibleAgainIsWaitedFor(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.receive(5, election.Probe, term(10), election.Hold{Ineligible: true})
	receiveResigned(h, 4, term(10), election.None, election.Hold{Ineligible: true})
	h.receive(5, election.Probe, term(10), election.Hold{})
	expect.Equalf(t, h.countSent(election.Beat), 0, "claims of 3 while 5 is eligible again")
}

// TestNamedSuccessorComesFirst: the named successor precedes processes that outrank it.
func TestNamedSuccessorComesFirst(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.input(self, election.Input{Kind: election.Suspect, Peer: 5})
	receiveResigned(h, 4, term(10), 1, election.Hold{Ineligible: true})
	expect.Equalf(t, h.countSent(election.Beat), 0,
		"claims of 3, the highest, before that of 1, the named successor")
	h.receive(1, election.Beat, term(11), election.Hold{Held: true})
	h.wantFollowed(1, self)

	lost := newFollower(t, office.Majority, nil)
	lost.input(self, election.Input{Kind: election.Suspect, Peer: 5})
	receiveResigned(lost, 4, term(10), 1, election.Hold{Ineligible: true})
	lost.advance(suspicionTimeout)
	if lost.countSent(election.Beat) == 0 {
		t.Error("got no claim of 3, want one since 1 doesn't claim the office")
	}
}
