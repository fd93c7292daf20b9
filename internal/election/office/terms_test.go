package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Process 1 restarts again and again, and runs its recovery procedure each time. That
// concerns neither the coordinator nor the highest process.
func TestRestartsOfOtherDontDelayHandOver(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, restarts := range []bool{false, true} {
			g := newGroupOfSeconds(t, mode)
			intervals := g.configure
			g.configure = func(c *office.Config) {
				intervals(c)
				c.Policy, c.StablePeriod = office.WhenStable, 10*second
			}
			roster := newRoster(t, 1, 1, 2, 3, 4, 5)
			for _, id := range []election.ID{1, 2, 3, 4} {
				g.start(id, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, term(1), 4 })
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

// claimed returns the terms in which process 3 has claimed the office.
func (h *harness) claimed() (terms []election.Term) {
	for _, m := range h.captured {
		if m.Kind == election.Beat && m.To == 1 && !slices.Contains(terms, m.Term) {
			terms = append(terms, m.Term)
		}
	}
	return terms
}

// newWitness returns process 3 of 1 to 3 without a coordinator, which was 2 in term 20.
func newWitness(t *testing.T, mode office.Mode) *harness {
	t.Helper()
	h := newHarness(t, mode, nil)
	h.start(self, newRoster(t, 1, 1, 2, self),
		func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, term(20), 2 })
	h.input(self, election.Input{Kind: election.Ended, Peer: 2, Life: 1})
	h.captured = nil
	return h
}

// A process that wins an election in a term of a newer list, which it doesn't have yet, claims no term of that list.
func TestProcessClaimsOnlyTermsOfItsList(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		for version := uint32(1); version <= 2; version++ {
			h := newWitness(t, mode)
			h.send(election.Message{Kind: election.Election, From: 1, Term: termOf(version, 25)})
			h.advance(3 * suspicionTimeout)
			claimed := h.claimed()
			if len(claimed) == 0 {
				t.Errorf("election under list %d: got no claim", version)
			}
			for _, term := range claimed {
				expect.Equalf(t, term.Version(), 1, "election under list %d: claimed term %d of list", version, term)
			}
		}
	})
}

// A process claims nothing while a majority has granted terms of a newer list: they would refuse each term of its own
// one. It claims a term of the next list that it adopts at once.
func TestClaimWaitsForListIfMajorityHasGrantedTermsOfNewerOne(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for granted, claims := range map[election.Term]bool{
			term(40): true, election.LastTerm(1): false, termOf(2, 5): false,
		} {
			h := newFollower(t, mode, nil)
			h.advance(suspicionTimeout)
			report := func() {
				h.answered(granted, 1, 2, 5)
			}
			for range 10 {
				report()
				h.advance(heartbeat)
			}
			expect.Equalf(t, h.countEvents(self, election.Started) > 0, claims, "granted %d: campaigns", granted)
			if claims {
				continue
			}
			h.captured = nil
			h.adopt(newRoster(t, 3, 1, 2, 3, 4, 5), self)
			report()
			h.advance(heartbeat + stagger)
			expect.Equalf(t, h.countEvents(self, election.Started) > 0, true, "granted %d, list 3: campaigns", granted)
			for _, m := range h.captured {
				if m.Kind == election.Election {
					expect.Equalf(t, m.Term.Version(), 3, "granted %d: election in a term of list", granted)
				}
			}
		}
	})
}

// A process takes part in no election in a term of its list that is far above those in use, as far as it or a majority
// knows. Otherwise a message could use up the terms.
func TestElectionOutOfReachIsRefused(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(suspicionTimeout)
		ask := func(counter election.Term, refused bool) {
			t.Helper()
			before := h.countEvents(self, election.Refused)
			h.receive(1, election.Election, term(counter), election.Hold{})
			expect.Equalf(t, h.countEvents(self, election.Refused) > before, refused, "election in term %d: refused", counter)
		}
		ask(10+4096, false)
		ask(10+4097, true)
		h.answered(term(20_000), 1, 2, 5)
		ask(20_000+4096, false)
		ask(20_000+4097, true)
	})
}

// In Available mode, each side of a partition has a coordinator. Both may lead in the same term, with different tokens.
func TestTokensOfPartitionDiffer(t *testing.T) {
	roster := newRoster(t, 1, 1, 2, 3, 4)
	g := &group{t: t, mode: office.Available, drop: func(m *election.Message) bool { return crosses(m, 1, 2) }}
	for _, m := range roster.Ring() {
		g.start(m.ID, roster, func(c *office.Config) { c.MemoryLost = false })
	}
	g.advance(10 * lease)
	expect.EqualSlicesf(t, g.holders(), []election.ID{2, 4}, "holders")
	must.Equalf(t, len(g.tokens), 2, "tenures")
	expect.Equalf(t, g.tokens[0].Term(), g.tokens[1].Term(), "term")
	expect.Equalf(t, g.tokens[0] == g.tokens[1], false, "equal tokens")
}

// Terms of a list are used up. The counter doesn't overflow into the terms of the next list: the group waits for that
// list.
func TestTermsOfListAreUsedUp(t *testing.T) {
	inEachMode(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, 3)
		g := &group{t: t, mode: mode}
		for _, m := range roster.Ring() {
			g.start(m.ID, roster, func(c *office.Config) {
				c.MemoryLost, c.Reserved = false, election.LastTerm(1)
				c.Term, c.Coordinator = election.LastTerm(1), 3
			})
		}
		g.advance(heartbeat)
		g.wantHolder(3)
		for _, m := range g.machines {
			if m != nil {
				expect.Equalf(t, m.Wanted(), election.LastTerm(1), "reservation that is wanted")
			}
		}
		g.crash(3, true)
		g.drop = func(m *election.Message) bool {
			expect.AtMostf(t, m.Term, election.LastTerm(1), "term of a message before the next list")
			return false
		}
		g.advance(10 * lease)
		g.wantHolder(election.None)
		g.drop = nil
		g.adopt(newRoster(t, 2, 1, 2, 3).Succeed(roster), 1, 2)
		g.advance(3 * lease)
		g.wantHolder(2)
		expect.Equalf(t, g.machines[2].Status().Term.Version(), 2, "term of list")
	})
}

// The coordinator was a false one, in a term near the last one of the list. The next claim doesn't need a higher one:
// this process could claim no other until the next list.
func TestTermOfFalseCoordinatorIsNotClaimed(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(2 * lease)
		h.receive(5, election.Beat, election.LastTerm(1)-1, election.Hold{Held: true})
		h.wantFollowed(5, self)
		for _, id := range []election.ID{4, 5} {
			h.input(self, election.Input{Kind: election.Ended, Peer: id, Life: 1})
		}
		expect.EqualSlicesf(t, h.claimed(), []election.Term{term(11)}, "claimed terms")
	})
}

// One message of a member in a term that nobody uses must not keep the group without a coordinator. One that names a
// newer list may, until the next list.
func TestOneMessageDoesntStopGroup(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, lie := range []election.Term{
			term(33), term(64), term(65), term(4096), term(4097), election.LastTerm(1), termOf(2, 1), termOf(1<<26, 1),
		} {
			for _, held := range []bool{false, true} {
				for to := election.ID(2); to <= 3; to++ {
					g := newGroupOfSeconds(t, mode)
					roster := newRoster(t, 1, 1, 2, 3)
					g.startAgreed(3, roster)
					g.advance(second)
					beat := election.Message{
						Kind: election.Beat, From: 1, To: to, Term: lie, Subject: 1,
						Hold: election.Hold{Held: held, Life: 1, Version: lie.Version()},
					}
					g.deliver(beat)
					g.deliverAll()
					vacant := g.untilHolder(60 * second)
					g.crash(g.holders()[0], true)
					g.deliver(beat)
					g.advance(2 * second)
					if len(g.holders()) == 0 && lie.Version() > 1 {
						g.adopt(newRoster(t, lie.Version()+1, 1, 2, 3).Succeed(roster), 1, 2)
						g.advance(2 * second)
					}
					if vacant > 2*second || len(g.holders()) == 0 {
						t.Errorf("term %d of list %d, held %t, to %d: got no holder for %d ms, and holders %d two seconds after a crash",
							lie.Counter(), lie.Version(), held, to, vacant, g.holders())
					}
				}
			}
		}
	})
}
