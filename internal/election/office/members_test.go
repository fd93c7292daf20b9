package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// inGrantModes runs a test in both modes in which at most one process may hold
// the office.
func inGrantModes(t *testing.T, test func(*testing.T, office.Mode)) {
	t.Helper()
	for _, mode := range []office.Mode{office.Majority, office.Strict} {
		t.Run(mode.String(), func(t *testing.T) { test(t, mode) })
	}
}

// The coordinator is the first to adopt the new list and fails before the
// others adopt it. They elect another coordinator under the old list. One of
// them adopts the new list while its grant under the old one is in force.
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

// A late answer to an earlier incarnation of the process doesn't report what that was
// granted.
func TestAnswerToEarlierIncarnationDoesntLowerFloor(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newCandidateUnder(t, mode, newRoster(t, 2, 3, 4, 5).Succeed(newRoster(t, 1, 1, 2, 3), 0))
		h.receive(1, election.Grant, 20, election.Hold{Sent: h.now, Version: 2, HighestGranted: 20})
		h.receive(1, election.Grant, 20, election.Hold{Sent: h.now, Version: 2, RequesterLife: 7})
		h.receive(4, election.Grant, 20, election.Hold{Sent: h.now, Version: 2})
		h.wantHolder(election.None)
	})
}

// A process that missed the last list with its coordinator receives nothing
// from that coordinator any more.
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
