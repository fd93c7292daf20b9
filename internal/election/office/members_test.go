package office_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// inGrantModes runs a test in both modes in which at most one process may hold the office.
func inGrantModes(t *testing.T, test func(*testing.T, office.Mode)) {
	t.Helper()
	for _, mode := range []office.Mode{office.Majority, office.Strict} {
		t.Run(mode.String(), func(t *testing.T) { test(t, mode) })
	}
}

// The coordinator is the first to adopt the new list and fails before the others adopt it. They elect another
// coordinator under the old list. One of them adopts the new list while its grant under the old one is in force.
func TestMemberGrantsUnderOldListAfterGrantUnderNewOne(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 3, 4, 5).Succeed(first)
		g := newGroup(t, mode, 3, first, nil)
		g.adopt(second, 3)
		g.start(4, second, nil)
		g.start(5, second, nil)
		g.advance(heartbeat)
		g.crash(3, true)
		g.advance(2 * lease)
		g.wantHolder(2)
		g.start(3, second, nil)
		g.advance(2 * lease)
		g.wantHolder(2)
		g.adopt(second, 1)
		g.advance(lease)
		g.adopt(second, 2)
		g.advance(4 * lease)
		g.wantHolder(5)
	})
}

// A process that missed the last list with its coordinator receives nothing from that coordinator any more.
func TestCoordinatorOnNoListIsNotFollowed(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.wantFollowed(4, self)
		h.adopt(newRoster(t, 3, 1, 2, 3).Succeed(newRoster(t, 2, 1, 2, 3), 0), self)
		h.wantFollowed(election.None, self)
	})
}

func TestRemovedProcessIsNeitherGrantedNorFollowed(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.adopt(newRoster(t, 2, 1, 2, 3, 5).Succeed(newRoster(t, 1, 1, 2, 3, 4, 5), 0), self)
		h.advance(3 * lease)
		h.receive(4, election.Beat, term(30), election.Hold{Version: 2})
		h.wantAnswer(4, election.NoKind)
		h.receive(4, election.Beat, term(30), election.Hold{Version: 2, Held: true})
		h.wantAnswer(4, election.NoKind)
		h.wantFollowed(election.None, self)
		h.receive(5, election.Beat, term(30), election.Hold{Version: 2})
		h.wantAnswer(5, election.Grant)
	})
}

// A departed member can't report the terms that it granted. They are of older lists.
func TestTenureExceedsTermsOfDepartedMembers(t *testing.T) {
	first, alone := newRoster(t, 1, 1, 2, self), newRoster(t, 2, self)
	departed := alone.Succeed(first, 1, 2)
	for learns, from := range map[string]*election.Roster{
		"from its first list":                departed,
		"from the next list":                 first,
		"from its own list, published again": alone.Succeed(first),
	} {
		t.Run(learns, func(t *testing.T) {
			inGrantModes(t, func(t *testing.T, mode office.Mode) {
				g := &group{t: t, mode: mode}
				g.start(self, from, func(c *office.Config) { c.MemoryLost = false })
				if from != departed {
					g.advance(25)
					g.wantHolder(election.None)
					g.adopt(departed, self)
				}
				g.advance(4 * lease)
				g.wantHolder(self)
				expect.AtLeastf(t, g.tokens[0].Term(), election.LastTerm(1)+1,
					"term of the tenure, above those that the departed may have granted")
			})
		})
	}
}

// TestMembersLearnThatListHasSettled: a member that a list removes may end together with the coordinator. The
// others are a majority of the list alone, so they must know that it has settled.
func TestMembersLearnThatListHasSettled(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		before := newRoster(t, 1, 1, 2, 3, 4)
		g := newGroup(t, mode, 4, before, nil)
		list := newRoster(t, 2, 2, 3, 4).Succeed(before)
		g.adopt(list, 4, 3, 2)
		g.advance(second)
		g.wantFollowed(4, 2, 3)
		g.crash(1, true)
		g.crash(4, true)
		g.advance(2 * second)
		g.wantHolder(3)
	})
}

// Two of the four members of the previous list don't have the new one when they end, together with the coordinator. The
// others are a majority of the new list alone, which isn't enough.
func TestListThatHasNotSettledDoesntSuffice(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		before := newRoster(t, 1, 1, 2, 3, 4)
		list := newRoster(t, 2, 3, 4, 5).Succeed(before)
		for _, adopted := range [][]election.ID{{3, 4}, {3}} { // The coordinator has the new list, or still the previous one.
			g := newGroup(t, mode, 4, before, nil)
			g.start(5, list, nil)
			g.adopt(list, adopted...)
			g.advance(lease)
			g.wantFollowed(4, 3)
			for _, id := range []election.ID{1, 2, 4} {
				g.crash(id, true)
			}
			g.advance(10 * lease)
			g.wantHolder(election.None)
		}
	})
}

// replacePod replaces the pod of a member by one with the same name and another state directory. It returns the next
// list, which has settled.
func (g *group) replacePod(id election.ID, before *election.Roster) *election.Roster {
	g.t.Helper()
	g.crash(id, true)
	g.loseDirectory(id)
	list := g.named(before.Version+1, before)
	g.start(id, list.Succeed(before), func(c *office.Config) { c.MemoryLost = false })
	g.adopt(list.Succeed(before), 1, 2, 3, 4, 5)
	g.advance(memberlist.AdoptionWait(second / 2))
	g.adopt(list.Succeed(before, id), 1, 2, 3, 4, 5)
	return list
}

// TestFailoverAfterManyLists: the pods are replaced, one at a time, again and again. A failover takes no longer than
// otherwise.
func TestFailoverAfterManyLists(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g, list := newGroupOfSeconds(t, mode), newRoster(t, 1, 1, 2, 3, 4, 5)
		g.startAgreed(5, list)
		for n := range election.ID(20) {
			list = g.replacePod(1+n%5, list)
			g.advance(2 * second)
		}
		for range 2 {
			usual := map[office.Mode]election.Tick{office.Strict: second / 2}[mode]
			g.crash(g.holders()[0], true)
			expect.AtMostf(t, g.untilHolder(60*second), usual+second/2, "time until the next coordinator")
		}
	})
}

// The coordinator has crashed. Process 1 has adopted a list in which 4 replaces it. Process 2
// hasn't received that list yet, so 1 can't grant its claim. But 2 can grant that of 1.
func TestClaimUnderOlderListDoesntBlockOthers(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 2, 4).Succeed(first)
		g := newGroup(t, mode, 3, first, nil)
		g.advance(heartbeat)
		g.adopt(second, 1)
		g.advance(heartbeat)
		g.crash(3, true)
		expect.AtMostf(t, g.untilHolder(20*lease), 3*lease, "ticks without a coordinator")
	})
}

// A rollout replaces five pods, one at a time as fast as they follow the coordinator. It changes the coordinator twice
// at most: when its pod is replaced, and when the highest process is ready again. New pods take a lease or longer to
// start. Agents that restart in their pods may take less time: they remember what they granted.
func TestRolloutChangesCoordinatorTwice(t *testing.T) {
	orders := [][]election.ID{
		{5, 4, 3, 2, 1}, {1, 2, 3, 4, 5}, {1, 2, 5, 4, 3}, {1, 5, 4, 3, 2}, {3, 5, 1, 4, 2}, {5, 1, 2, 3, 4},
	}
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
							memory := g.machines[id].Memory()
							g.crash(id, true)
							g.advance(down)
							g.start(id, roster, func(c *office.Config) {
								c.EarlierEnded = down
								if down < lease && mode != office.Available {
									c.MemoryLost, c.Memory = false, &memory
								}
							})
							g.input(id, election.Input{Kind: election.Recover})
							for limit := g.now + lease; g.machines[id].Status().Coordinator == election.None && g.now < limit; {
								g.advance(1)
							}
						}
						g.advance(10 * stablePeriod)
						expect.AtMostf(t, len(g.tokens)-before, 2, "order %d: changes of the coordinator", order)
					}
				})
			})
		}
	}
}

// TestRolloutDoesNotMakeLeasesLonger: on a quiet network, neither tenures that end nor pods that start show that
// renewals are late.
func TestRolloutDoesNotMakeLeasesLonger(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g, list := newGroupOfSeconds(t, mode), newRoster(t, 1, 1, 2, 3, 4, 5)
		usual := g.configure
		g.configure = func(c *office.Config) {
			usual(c)
			c.UsualLease, c.Lease, c.CalmPeriod = c.Lease, 4*c.Lease, 10*second
			c.Policy = office.Always
		}
		g.startAgreed(5, list)
		for n := range 15 {
			list = g.replacePod(election.ID(5-n%5), list)
			g.advance(2*second - g.now%(2*second))
			for id := election.ID(1); id <= 5; id++ {
				expect.Equalf(t, g.machines[id].SuspicionTimeoutInForce(), 2*second/5,
					"after %d pods: suspicion timeout of process %d", n+1, id)
			}
		}
	})
}
