package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// guarded runs a test in both modes in which at most one process may hold the
// office.
func guarded(t *testing.T, test func(*testing.T, office.Mode)) {
	t.Helper()
	for _, mode := range []office.Mode{office.Majority, office.Strict} {
		t.Run(mode.String(), func(t *testing.T) { test(t, mode) })
	}
}

// The coordinator takes the new list over first and fails before the others do.
// They elect another one under the old list; one of them takes the new list over
// while its grant under the old one is in force.
func TestAMemberGrantsUnderTheOldListAfterAnEarlierGrantUnderTheNewOne(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		first := list(t, 1, 1, 2, 3)
		second := list(t, 2, 3, 4, 5).Succeed(first, 0)
		w := settle(t, mode, 3, first, nil)
		w.adopt(second, 3)
		w.start(4, second, nil)
		w.start(5, second, nil)
		w.pass(heartbeat)
		w.crash(3, true)
		w.pass(2 * lease)
		w.wantHolder(2)
		w.start(3, second, nil)
		w.pass(2 * lease)
		w.wantHolder(2)
		w.adopt(second, 1)
		w.pass(lease)
		w.adopt(second, 2)
		w.pass(4 * lease)
		w.wantHolder(5)
	})
}

// A member that granted under the old list comes back without its memory and
// with the new list: what it granted is still in force.
func TestAMemberThatLostItsMemoryDoesntSayThatItAdoptedBeforeItsGrantsHaveRunOut(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		first := list(t, 1, 1, 2, 3)
		second := list(t, 2, 1, 3, 4, 5, 6).Succeed(first, 0)
		w := settle(t, mode, 2, first, nil)
		for _, id := range []election.ID{4, 5} {
			w.start(id, second, nil)
		}
		w.adopt(second, 3)
		w.pass(3 * lease)
		w.wantHolder(2)
		w.crash(1, false)
		w.start(1, second, nil)
		w.pass(4 * lease)
		w.adopt(second, 2)
		w.pass(4 * lease)
		w.wantHolder(5)
	})
}

// The claim was granted, in a term that may have been used under the old lists.
func TestAClaimOfATermThatMayHaveBeenUsedUnderAnOldListIsGivenUp(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		for _, floor := range []election.Term{19, 20} {
			d := claimantUnder(t, mode, list(t, 2, 3, 4, 5).Succeed(list(t, 1, 1, 2, 3), floor))
			for _, id := range []election.ID{1, 2, 4, 5} { // 1 and 2 are asked, too, and have adopted the list
				d.says(id, election.Grant, 20, election.Hold{Sent: d.at, Version: 2})
			}
			if floor < 20 {
				d.wantHolder(me)
			} else {
				d.wantHolder(election.None)
			}
		}
	})
}

// The same where a member says how high the terms are that it granted: whoever
// relies on the new list alone could otherwise use one of them again.
func TestAClaimOfATermThatAMemberGrantedUnderTheOldListIsGivenUp(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		for _, bar := range []election.Term{19, 20} {
			d := claimantUnder(t, mode, list(t, 2, 3, 4, 5).Succeed(list(t, 1, 1, 2, 3), 0))
			d.says(1, election.Grant, 20, election.Hold{Sent: d.at, Version: 2, HighestGranted: bar})
			d.says(4, election.Grant, 20, election.Hold{Sent: d.at, Version: 2})
			if bar < 20 {
				d.wantHolder(me)
			} else {
				d.wantHolder(election.None)
			}
		}
	})
}

// A process that missed the list on which its coordinator was the last time
// hears nobody of it any more.
func TestACoordinatorThatIsOnNoListIsntFollowed(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := follower(t, mode, nil)
		d.wantFollowed(4, me)
		d.adopt(list(t, 3, 1, 2, 3).Succeed(list(t, 2, 1, 2, 3), 0), me)
		d.wantFollowed(election.None, me)
	})
}

func TestWhoIsNoLongerOnTheListIsNeitherGrantedNorFollowed(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := follower(t, mode, nil)
		d.adopt(list(t, 2, 1, 2, 3, 5).Succeed(list(t, 1, 1, 2, 3, 4, 5), 0), me)
		d.pass(3 * lease)
		d.says(4, election.Beat, 30, election.Hold{Version: 2})
		d.answered(4, election.NoKind)
		d.says(4, election.Beat, 30, election.Hold{Version: 2, Held: true})
		d.answered(4, election.NoKind)
		d.wantFollowed(election.None, me)
		d.says(5, election.Beat, 30, election.Hold{Version: 2})
		d.answered(5, election.Grant)
	})
}

// Who has departed can't say how high the terms are that it granted: as high as
// the clock reads, at most.
func TestATenureExceedsAllThatDepartedMembersMayHaveGranted(t *testing.T) {
	first, alone := list(t, 1, 1, 2, me), list(t, 2, me)
	departed := alone.Succeed(first, 0, 1, 2)
	before := func(c *office.Config) {
		c.MemoryLost, c.Clock = false, election.TermClock{AtBoot: 50, TicksPerTerm: 10}
	}
	for learns, from := range map[string]*election.Roster{
		"from the list that it starts with":      departed,
		"from the next list":                     first,
		"when the list that it has is told anew": alone.Succeed(first, 0),
	} {
		t.Run(learns, func(t *testing.T) {
			guarded(t, func(t *testing.T, mode office.Mode) {
				w := &town{t: t, mode: mode}
				w.start(me, from, before)
				reading := election.Term(50)
				if from != departed {
					w.pass(25)
					w.wantHolder(election.None)
					w.adopt(departed, me)
					reading = 52
				}
				w.pass(4 * lease)
				w.wantHolder(me)
				if token := w.tokens[0]; token.Term() <= reading {
					t.Errorf("it leads in term %d, when the departed may have granted term %d", token.Term(), reading)
				}
			})
		})
	}
}
