package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// perTerm is how long a term of the wall clock lasts: longer than a lease, as a
// second is.
const perTerm = 2 * lease

// wall gives the processes wall clocks, which read 1 at the start, and more by
// ahead.
func wall(w *town, ahead map[election.ID]election.Term) {
	w.tuned = func(c *office.Config) {
		reading := 1 + ahead[c.Self] + election.Term(w.at/perTerm)
		c.Clock = election.TermClock{AtBoot: reading, Boot: w.at, TicksPerTerm: perTerm}
	}
}

// Everybody restarts, and the highest process's clock is ahead of the others'.
// Were it to go on to a newer term before they read the last one, they would
// never catch up with it.
func TestMembersWhoseClocksAreBehindGrantTheOfficeInTheEnd(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		for _, ahead := range []election.Term{0, 1, 3, 10} {
			w := &town{t: t, mode: mode}
			wall(w, map[election.ID]election.Term{3: ahead})
			roster := list(t, 1, 1, 2, 3)
			for _, id := range []election.ID{3, 2, 1} {
				w.start(id, roster, nil)
				w.pass(perTerm / 3) // so that their terms don't begin together
			}
			w.pass(election.Tick(ahead+2)*perTerm + lease)
			w.wantHolder(3)
			w.wantFollowed(3, 1, 2, 3)
		}
	})
}

// The coordinator and its follower lose each other, and meet again before their
// clocks, which agree, read the next term.
func TestWhoWaitsForTheSameMomentOfTheClockDoesntStandAtOnce(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode}
		wall(w, nil)
		roster := list(t, 1, 1, 2)
		for _, id := range []election.ID{1, 2} {
			w.start(id, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 1, 2 })
		}
		w.pass(heartbeat)
		w.wantHolder(2)
		w.cut = func(m *election.Message) bool { return between(m, 2) }
		w.pass(patience + 2*heartbeat)
		w.wantFollowed(election.None, 1)
		w.cut = nil
		w.pass(perTerm - w.at + stagger + 2)
		w.wantHolder(2)
		w.wantFollowed(2, 1)
	})
}

func TestTheHighestIsTheFirstToStandWhenTheClockReadsANewTerm(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode}
		wall(w, nil)
		roster := list(t, 1, 1, 2, 3)
		for _, id := range []election.ID{1, 2, 3} {
			w.start(id, roster, nil)
		}
		w.pass(perTerm + stagger)
		w.wantHolder(3)
		for _, id := range []election.ID{1, 2} {
			if n := w.count(id, election.Started); n != 0 {
				t.Errorf("process %d started %d elections", id, n)
			}
		}
	})
}

// The highest process has won and waits for its grants; the others leave it the
// time for that.
func TestNobodyBelowStartsAnElectionWhileAClaimIsHeard(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 4, list(t, 1, 1, 2, 3, 4), nil)
		w.pass(heartbeat)
		w.crash(4, false) // what it was granted has to run out
		w.pass(3 * lease)
		w.wantHolder(3)
		for _, id := range []election.ID{1, 2} {
			if n := w.count(id, election.Started); n != 0 {
				t.Errorf("process %d started %d elections", id, n)
			}
		}
		if got := w.all[3].Status().Term; got != 2 {
			t.Errorf("the office is held in term %d, want 2", got)
		}
	})
}

// The clock of process 4 passes two terms between two BEATs: it grants the second
// to a process that is gone, and can't grant itself the first any more.
func TestAClaimThatTheProcessItselfMayNotGrantIsGivenUp(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode}
		w.tuned = func(c *office.Config) {
			c.MemoryLost, c.Term, c.Coordinator = false, 61, 4
			c.Clock = election.TermClock{AtBoot: 60, TicksPerTerm: 5}
			if c.Self != 4 {
				c.Clock.AtBoot = 100
			}
		}
		roster := list(t, 1, 1, 2, 3, 4)
		for _, id := range []election.ID{1, 3, 4} {
			w.start(id, roster, nil)
		}
		w.pass(1)
		w.arrive(election.Message{
			Kind: election.Beat, From: 2, To: 4, Term: 62, Subject: 2, Hold: election.Hold{Life: 1, Version: 1},
		})
		w.pass(8 * lease)
		w.wantHolder(4)
	})
}

// The highest process's clock is a day behind. What it claims, others granted
// long ago; and what they say makes no sense to it.
func TestAClaimOfATermLongGoneKeepsNobodyFromStanding(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode}
		const ahead = 10000
		wall(w, map[election.ID]election.Term{1: ahead, 2: ahead, 3: ahead})
		roster := list(t, 1, 1, 2, 3, 4)
		for _, id := range []election.ID{1, 2, 3, 4} {
			w.start(id, roster, nil)
		}
		w.pass(4*perTerm + 4*patience)
		w.wantHolder(3)
		w.wantFollowed(3, 1, 2, 3)
	})
}
