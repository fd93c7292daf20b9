package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// desk is one process alone; the test plays all the others.
type desk struct{ *town }

const me election.ID = 3

// follower is process 3 of 1 to 5, which has followed 4 in term 10 until 4 fell
// silent; what it granted then has run out.
func follower(t *testing.T, mode office.Mode, tune func(*office.Config)) *desk {
	t.Helper()
	w := &town{t: t, mode: mode, tuned: tune}
	w.keep = func(*election.Message) bool { return true }
	w.start(me, list(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 10, 4 })
	d := &desk{w}
	d.says(4, election.Beat, 10, election.Hold{Held: true})
	w.pass(1)
	return d
}

// claimant is process 3 when it claims the office in term 20.
func claimant(t *testing.T, mode office.Mode) *desk {
	t.Helper()
	return claimantUnder(t, mode, list(t, 1, 1, 2, 3, 4, 5))
}

func claimantUnder(t *testing.T, mode office.Mode, roster *election.Roster) *desk {
	t.Helper()
	w := &town{t: t, mode: mode}
	w.keep = func(*election.Message) bool { return true }
	w.start(me, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 20, me })
	w.pass(1)
	return &desk{w}
}

// says lets a message of another process arrive. The holds of the first life of
// everyone who goes by list 1 are filled in.
func (d *desk) says(from election.ID, kind election.Kind, term election.Term, hold election.Hold) {
	d.t.Helper()
	if hold.Life == 0 {
		hold.Life = 1
	}
	if hold.Version == 0 {
		hold.Version = 1
	}
	if (kind == election.Grant || kind == election.Deny) && hold.RequesterLife == 0 {
		hold.RequesterLife = 1
	}
	d.kept = nil
	d.tell(me, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: kind, From: from, To: me, Term: term, Subject: from, Hold: hold,
	}})
}

// answered checks the kind of the answer that was sent last.
func (d *desk) answered(to election.ID, want election.Kind) {
	d.t.Helper()
	got := election.NoKind
	for _, m := range d.kept {
		if m.To == to && m.Kind != election.Probe {
			got = m.Kind
		}
	}
	if got != want {
		d.t.Errorf("at %d process %d was answered %v, want %v", d.at, to, got, want)
	}
}

func (d *desk) sent(kind election.Kind) (n int) {
	for _, m := range d.kept {
		if m.Kind == kind {
			n++
		}
	}
	return n
}

func TestAMessageOfATermThatMakesNoSenseIsRefused(t *testing.T) {
	d := follower(t, office.Majority, func(c *office.Config) {
		c.Clock = election.TermClock{AtBoot: 100, TicksPerTerm: 1000}
	})
	d.says(5, election.Beat, 100+1<<20+1, election.Hold{Held: true})
	d.wantFollowed(4, me)
	d.says(9, election.Beat, 12, election.Hold{Held: true}) // a stranger's
	if n := d.count(me, election.Refused); n != 2 || len(d.kept) != 0 {
		t.Errorf("%d messages were refused and %d answered, want 2 and none", n, len(d.kept))
	}
}

func TestABeatOfATermThatWasGivenUpIsntGranted(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := follower(t, mode, nil)
		d.pass(3 * lease)
		d.says(5, election.Resigned, 30, election.Hold{}) // it overtook the claim
		d.says(5, election.Beat, 30, election.Hold{})
		d.answered(5, election.NoKind)
		d.says(5, election.Beat, 31, election.Hold{})
		d.answered(5, election.Grant)
	})
}

func TestTheEndOfAProcessFreesItsGrantInMajorityOnly(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := follower(t, mode, nil)
		d.tell(me, election.Input{Kind: election.Ended, Peer: 4, Life: 7}) // another life
		d.says(5, election.Beat, 11, election.Hold{})
		d.answered(5, election.Deny)
		d.tell(me, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		d.says(5, election.Beat, 12, election.Hold{})
		if mode == office.Strict {
			d.answered(5, election.Deny)
			d.pass(lease)
			d.answered(5, election.Grant) // the claim was kept
			return
		}
		d.answered(5, election.Grant)
	})
}

func TestALateBeatOfAFormerCoordinatorIsntFollowed(t *testing.T) {
	d := follower(t, office.Majority, nil)
	d.says(5, election.Beat, 12, election.Hold{Held: true})
	d.wantFollowed(5, me)
	d.says(4, election.Beat, 10, election.Hold{Held: true})
	d.wantFollowed(5, me)
	d.says(5, election.Resigned, 11, election.Hold{}) // from a claim before that
	d.wantFollowed(5, me)
	d.says(5, election.Resigned, 12, election.Hold{})
	d.wantFollowed(election.None, me)
}

func TestAGrantCountsForItsTermOnly(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := claimant(t, mode)
		d.says(1, election.Grant, 20, election.Hold{Sent: d.at})
		d.says(2, election.Grant, 19, election.Hold{Sent: d.at})
		d.says(4, election.Grant, 20, election.Hold{Sent: d.at, RequesterLife: 2})
		d.says(1, election.Grant, 20, election.Hold{Sent: d.at}) // twice
		d.wantHolder(election.None)
		d.says(5, election.Grant, 20, election.Hold{Sent: d.at})
		d.wantHolder(me)
	})
}

func TestAClaimIsGivenUpWhenAMajorityRefusesItForGood(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := claimant(t, mode)
		claims := func() bool { return d.all[me].Status().Electing && d.count(me, election.Started) == 0 }
		d.says(1, election.Deny, 20, election.Hold{})
		d.says(2, election.Deny, 19, election.Hold{})                 // it is of an older claim
		d.says(2, election.Deny, 0, election.Hold{})                  // not yet
		d.says(4, election.Deny, 25, election.Hold{RequesterLife: 9}) // another life's
		d.says(5, election.Deny, 25, election.Hold{})
		if !claims() {
			t.Fatal("it gave up although three members may still grant")
		}
		d.says(2, election.Deny, 20, election.Hold{})
		if d.sent(election.Resigned) == 0 || claims() {
			t.Error("it goes on although two members are left")
		}
		for _, m := range d.kept {
			if m.Kind == election.Election && m.Term <= 25 {
				t.Errorf("the next election is of term %d, and 25 was granted", m.Term)
			}
		}
	})
}

func TestAHolderAsksForATickBeforeItsGrantsRunOut(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := claimant(t, mode)
		for _, id := range []election.ID{1, 2} {
			d.says(id, election.Grant, 20, election.Hold{Sent: d.at})
		}
		d.wantHolder(me)
		until := d.all[me].Status().Until
		d.at = until - 1
		d.step(me, election.Input{Kind: election.TimePassed}) // it was paused that long
		if due := d.all[me].Deadline(); due > until {
			t.Errorf("it asks for a tick at %d, and its tenure ends at %d", due, until)
		}
		d.wantHolder(me)
		d.at = until
		d.says(1, election.Grant, 20, election.Hold{Sent: until - 5}) // too late to count
		d.says(2, election.Grant, 20, election.Hold{Sent: until - 5})
		if d.count(me, election.TenureLost) != 1 {
			t.Error("the office isn't lost")
		}
		d.wantHolder(election.None)
	})
}

func TestAnApplicationThatWasntAskedToStopEndsNoTenure(t *testing.T) {
	d := claimant(t, office.Majority)
	d.says(1, election.Grant, 20, election.Hold{Sent: d.at})
	d.says(2, election.Grant, 20, election.Hold{Sent: d.at})
	d.tell(me, election.Input{Kind: election.Stopped})
	d.wantHolder(me)
}

func TestANewTenureIsAboveTheFloorOfTheList(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		first := list(t, 1, 1, 2, 3)
		second := list(t, 2, 1, 2, 3, 4, 5).Succeed(first, 500)
		w := settle(t, mode, 3, first, nil)
		w.crash(3, false)
		w.adopt(second, 1, 2)
		w.start(4, second, nil)
		w.start(5, second, nil)
		w.pass(8 * lease)
		w.wantHolder(5)
		if got := w.all[5].Status().Term; got <= 500 {
			t.Errorf("the office is held in term %d, and 500 may have been used before", got)
		}
	})
}

func TestAnOlderListIsRefused(t *testing.T) {
	first := list(t, 1, 1, 2, 3)
	second := list(t, 2, 2, 3, 4).Succeed(first, 0)
	w := settle(t, office.Majority, 3, first, nil)
	w.adopt(second, 2)
	w.adopt(first, 2)
	w.tell(2, election.Input{Kind: election.Adopt})
	if n := w.count(2, election.Refused); n != 2 {
		t.Errorf("%d lists were refused, want 2", n)
	}
}

func TestACoordinatorThatIsTakenOffTheListHandsTheOfficeOver(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		first := list(t, 1, 1, 2, 3)
		second := list(t, 2, 1, 2, 4).Succeed(first, 0)
		w := settle(t, mode, 3, first, nil)
		w.start(4, second, nil)
		w.pass(heartbeat)
		w.adopt(second, 1, 2, 3)
		w.pass(1)
		if w.count(3, election.OfficeResigned) != 1 {
			t.Error("process 3 is no member and didn't resign")
		}
		w.pass(3 * lease)
		w.wantHolder(4)
	})
}

// Two of the three members of the old list are gone for good; the third one never
// hears of the new list.
func TestTheDepartedSettleTheOldList(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		first := list(t, 1, 1, 2, 3)
		second := list(t, 2, 1, 4, 5).Succeed(first, 0)
		w := &town{t: t, mode: mode}
		wall(w, nil)
		w.agree(3, first)
		w.crash(3, false)
		w.crash(2, false)
		w.start(4, second, nil)
		w.start(5, second, nil)
		w.pass(4 * lease)
		w.wantHolder(election.None)
		w.adopt(second.Succeed(first, 0, 2, 3), 4, 5)
		w.pass(4 * lease)
		w.wantHolder(5)
	})
}

// Two processes that go by two lists may each be the highest: they would bully
// each other out at the speed of the network, a term each time.
func TestALowerCoordinatorIsLeftToTheHandOver(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		d := follower(t, mode, nil)
		d.says(2, election.Coordinator, 12, election.Hold{})
		for _, m := range d.kept {
			if m.Kind.Counts() {
				t.Errorf("it sends %s", m.Describe())
			}
		}
	})
}
