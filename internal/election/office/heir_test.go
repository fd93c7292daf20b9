package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

func resigns(d *desk, from election.ID, term election.Term, heir election.ID, hold election.Hold) {
	hold.Life = 1
	d.kept = nil
	d.tell(me, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: election.Resigned, From: from, To: me, Term: term, Subject: heir, Hold: hold,
	}})
}

// TestAnHeirNeedsNoElection: process 3 claims the office that 4 gives it, in the
// same step, and doesn't ask 5, which outranks it.
func TestAnHeirNeedsNoElection(t *testing.T) {
	d := follower(t, office.Majority, nil)
	resigns(d, 4, 10, me, election.Hold{Ineligible: true})
	if d.sent(election.Beat) != 4 || d.sent(election.Election) != 0 {
		t.Errorf("the heir sent %d BEATs and %d ELECTIONs, want 4 and none", d.sent(election.Beat), d.sent(election.Election))
	}
	for _, m := range d.kept {
		if m.Kind == election.Beat && m.Term != 11 {
			t.Errorf("the heir claims term %d, want 11", m.Term)
		}
	}
}

// TestWhoDoesNotStandIsNotWaitedFor: the coordinator has said that 5 doesn't
// stand, and resigns because it doesn't any more either. So 3 is the highest.
func TestWhoDoesNotStandIsNotWaitedFor(t *testing.T) {
	d := follower(t, office.Majority, nil)
	d.tell(me, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: election.Beat, From: 4, To: me, Term: 10, List: []election.ID{2, election.None, 5},
		Hold: election.Hold{Life: 1, Version: 1, Held: true},
	}})
	resigns(d, 4, 10, election.None, election.Hold{Ineligible: true})
	if d.sent(election.Beat) == 0 {
		t.Errorf("3 doesn't claim the office at once, but sent %v", d.kept)
	}

	again := follower(t, office.Majority, nil)
	resigns(again, 4, 10, election.None, election.Hold{})
	if again.sent(election.Beat) != 0 {
		t.Error("3 claims the office at once although 4 and 5 stand")
	}
}

// TestWhoStandsAgainIsWaitedFor: 5 was away, and has been heard of since.
func TestWhoStandsAgainIsWaitedFor(t *testing.T) {
	d := follower(t, office.Majority, nil)
	d.says(5, election.Probe, 10, election.Hold{Ineligible: true})
	resigns(d, 4, 10, election.None, election.Hold{Ineligible: true})
	d.says(5, election.Probe, 10, election.Hold{})
	if d.sent(election.Beat) != 0 {
		t.Error("3 claims the office although 5 stands again")
	}
}

// TestTheHeirComesFirst: also before those who outrank it.
func TestTheHeirComesFirst(t *testing.T) {
	d := follower(t, office.Majority, nil)
	d.tell(me, election.Input{Kind: election.Suspect, Peer: 5})
	resigns(d, 4, 10, 1, election.Hold{Ineligible: true})
	if d.sent(election.Beat) != 0 {
		t.Error("3, the highest, claims the office at once although 1 is to have it")
	}
	d.says(1, election.Beat, 11, election.Hold{Held: true})
	d.wantFollowed(1, me)

	lost := follower(t, office.Majority, nil)
	lost.tell(me, election.Input{Kind: election.Suspect, Peer: 5})
	resigns(lost, 4, 10, 1, election.Hold{Ineligible: true})
	lost.pass(patience)
	if lost.sent(election.Beat) == 0 {
		t.Error("3 doesn't claim the office although 1 doesn't take it")
	}
}
