package office_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
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
		second := newRoster(t, 2, 3, 4, 5).Succeed(first, 0)
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

// A member that granted under the old list restarts without its memory and with
// the new list. Its grant is still in force.
func TestMemberWithoutMemoryReportsAdoptionAfterGrantsExpired(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 3, 4, 5, 6).Succeed(first, 0)
		g := newGroup(t, mode, 2, first, nil)
		for _, id := range []election.ID{4, 5} {
			g.start(id, second, nil)
		}
		g.adopt(second, 3)
		g.advance(3 * lease)
		g.wantHolder(2)
		g.crash(1, false)
		g.start(1, second, nil)
		g.advance(4 * lease)
		g.adopt(second, 2)
		g.advance(4 * lease)
		g.wantHolder(5)
	})
}

// The claim was granted, in a term that may have been used under the old lists.
func TestClaimAtFloorOfListIsAbandoned(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, floor := range []election.Term{19, 20} {
			h := newCandidateUnder(t, mode, newRoster(t, 2, 3, 4, 5).Succeed(newRoster(t, 1, 1, 2, 3), floor))
			for _, id := range []election.ID{1, 2, 4, 5} { // 1 and 2 have adopted the list, too
				h.receive(id, election.Grant, 20, election.Hold{Sent: h.now, Version: 2})
			}
			if floor < 20 {
				h.wantHolder(self)
			} else {
				h.wantHolder(election.None)
			}
		}
	})
}

// The same if a member reports the term that it granted: a process that relies
// on the new list alone could otherwise use that term again.
func TestClaimOfTermGrantedUnderOldListIsAbandoned(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, bar := range []election.Term{19, 20} {
			h := newCandidateUnder(t, mode, newRoster(t, 2, 3, 4, 5).Succeed(newRoster(t, 1, 1, 2, 3), 0))
			h.receive(1, election.Grant, 20, election.Hold{Sent: h.now, Version: 2, HighestGranted: bar})
			h.receive(4, election.Grant, 20, election.Hold{Sent: h.now, Version: 2})
			if bar < 20 {
				h.wantHolder(self)
			} else {
				h.wantHolder(election.None)
			}
		}
	})
}

// A late answer to an earlier incarnation of the process doesn't report what that was granted.
func TestAnswerToEarlierIncarnationDoesntLowerFloor(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidateUnder(t, mode, newRoster(t, 2, 3, 4, 5).Succeed(newRoster(t, 1, 1, 2, 3), 0))
		h.receive(1, election.Grant, 20, election.Hold{Sent: h.now, Version: 2, HighestGranted: 20})
		h.receive(1, election.Grant, 20, election.Hold{Sent: h.now, Version: 2, RequesterLife: 7})
		h.receive(4, election.Grant, 20, election.Hold{Sent: h.now, Version: 2})
		h.wantHolder(election.None)
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
		h.receive(4, election.Beat, 30, election.Hold{Version: 2})
		h.wantAnswer(4, election.NoKind)
		h.receive(4, election.Beat, 30, election.Hold{Version: 2, Held: true})
		h.wantAnswer(4, election.NoKind)
		h.wantFollowed(election.None, self)
		h.receive(5, election.Beat, 30, election.Hold{Version: 2})
		h.wantAnswer(5, election.Grant)
	})
}

// A departed member can't report the terms that it granted. They are at most the floor
// of the list, which the publisher raises whenever a member has departed.
func TestTenureExceedsTermsOfDepartedMembers(t *testing.T) {
	first, alone := newRoster(t, 1, 1, 2, self), newRoster(t, 2, self)
	departed := alone.Succeed(first, 500, 1, 2)
	before := func(c *office.Config) {
		c.MemoryLost, c.Clock = false, election.TermClock{AtBoot: 50, TicksPerEpoch: 10}
	}
	for learns, from := range map[string]*election.Roster{
		"from its first list":                departed,
		"from the next list":                 first,
		"from its own list, published again": alone.Succeed(first, 0),
	} {
		t.Run(learns, func(t *testing.T) {
			inGrantModes(t, func(t *testing.T, mode office.Mode) {
				g := &group{t: t, mode: mode}
				g.start(self, from, before)
				if from != departed {
					g.advance(25)
					g.wantHolder(election.None)
					g.adopt(departed, self)
				}
				g.advance(4 * lease)
				g.wantHolder(self)
				if token := g.tokens[0]; token.Term() <= 500 {
					t.Errorf("got a tenure in term %d, want one above 500, which the departed may have granted", token.Term())
				}
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
		list := newRoster(t, 2, 2, 3, 4).Succeed(before, 0)
		g.adopt(list, 4, 3, 2)
		g.advance(second)
		g.wantFollowed(4, 2, 3)
		g.crash(1, true)
		g.crash(4, true)
		g.advance(2 * second)
		g.wantHolder(3)
	})
}

// rollout is a group whose pods are replaced, one at a time. Each replacement is a list, whose floor
// is raised when it is published, when the replaced pod has departed, and when it settles.
type rollout struct {
	*group
	roster *election.Roster
}

// nextFloor is the floor by the operator's clock, which is that of the slowest member.
func (r *rollout) nextFloor() election.Term {
	return election.NextFloor(r.roster.Floor, 10_000_000+election.Epoch(r.now/(second/10)))
}

// replace replaces the lowest member by one of another ID.
func (r *rollout) replace(by election.ID) {
	r.t.Helper()
	before, ids := r.roster, []election.ID{by}
	old := election.ID(0)
	for _, m := range before.Ring() {
		if old == 0 && r.holders()[0] != m.ID {
			old = m.ID
			continue
		}
		ids = append(ids, m.ID)
	}
	list, floor := newRoster(r.t, before.Version+1, ids...), r.nextFloor()
	r.roster = list.Succeed(before, floor)
	r.crash(old, true)
	r.start(by, r.roster, nil)
	r.adopt(r.roster, ids[1:]...)
	r.advance(memberlist.AdoptionWait(second / 2))
	r.roster = list.Succeed(before, r.nextFloor(), old)
	r.adopt(r.roster, ids...)
	r.advance(second / 10)
	settled := make([]election.ID, 0, len(before.Ring()))
	for _, m := range before.Ring() {
		settled = append(settled, m.ID)
	}
	r.roster = list.Succeed(before, r.nextFloor(), settled...)
	r.adopt(r.roster, ids...)
}

// TestFailoverAfterManyLists: lists that follow each other quickly raise the floor far above all clocks. After that, a
// failover takes no longer than otherwise, also if the clocks differ, and if only a majority is left.
func TestFailoverAfterManyLists(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, skew := range []election.Epoch{0, 5, 14} {
			for _, left := range []int{4, 3} {
				ahead := map[election.ID]election.Epoch{2: skew, 3: skew / 2, 5: skew, 6: skew / 3, 7: skew} // in seconds
				r := &rollout{group: newSkewedGroup(t, mode, ahead), roster: newRoster(t, 1, 1, 2, 3, 4, 5)}
				for _, m := range r.roster.Ring() {
					r.start(m.ID, r.roster, nil)
				}
				r.untilHolder(60 * second)
				r.advance(2 * second)
				for range 20 {
					by := election.ID(1)
					for r.roster.Has(by) || r.machines[by] != nil {
						by++
					}
					r.replace(by)
					r.advance(2*second - memberlist.AdoptionWait(second/2) - second/10)
				}
				r.advance(second)
				worst := election.Tick(0)
				for range 4 {
					var down []election.ID
					for len(down) < 5-left {
						victim := r.holders()[0]
						r.crash(victim, true)
						down = append(down, victim)
						took := r.untilHolder(120 * second)
						worst = max(worst, took)
						t.Logf("clocks %d s apart, %d left: next coordinator after %d ms", skew, 5-len(down), took)
					}
					slices.Sort(down)
					for _, id := range down {
						r.start(id, r.roster, nil)
					}
					r.advance(2 * second)
				}
				if usual := map[office.Mode]election.Tick{office.Strict: second / 2}[mode]; worst > usual+second {
					t.Errorf(
						"clocks %d s apart, %d members left: got no coordinator for %d ms, want two leases more than usual at most",
						skew, left, worst)
				}
			}
		}
	})
}

// The coordinator has crashed. Process 1 has adopted a list in which 4 replaces it. Process 2
// hasn't received that list yet, so 1 can't grant its claim. But 2 can grant that of 1.
func TestClaimUnderOlderListDoesntBlockOthers(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 2, 4).Succeed(first, 0)
		g := newGroup(t, mode, 3, first, nil)
		g.advance(heartbeat)
		g.adopt(second, 1)
		g.advance(heartbeat)
		g.crash(3, true)
		if took := g.untilHolder(20 * lease); took > 3*lease {
			t.Errorf("got holder %d after %d ticks, want one within %d", g.holders(), took, 3*lease)
		}
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
