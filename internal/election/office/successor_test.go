package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

func receiveResigned(h *harness, from election.ID, term election.Term, successor election.ID, hold election.Hold) {
	hold.Life = 1
	h.captured = nil
	h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: election.Resigned, From: from, To: self, Term: term, Subject: successor, Hold: hold,
	}})
}

// TestNamedSuccessorNeedsNoElection: process 3 claims the office in the same
// step in which 4 resigns in its favor, and doesn't send ELECTION to 5, which
// outranks it.
func TestNamedSuccessorNeedsNoElection(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	receiveResigned(h, 4, 10, self, election.Hold{Ineligible: true})
	if h.countSent(election.Beat) != 4 || h.countSent(election.Election) != 0 {
		t.Errorf("got %d BEATs and %d ELECTIONs, want 4 and none", h.countSent(election.Beat), h.countSent(election.Election))
	}
	for _, m := range h.captured {
		if m.Kind == election.Beat && m.Term != 11 {
			t.Errorf("got a claim of term %d, want 11", m.Term)
		}
	}
}

// TestIneligibleProcessIsNotWaitedFor: the coordinator has reported that 5 is
// ineligible, and resigns because it is ineligible itself. So 3 is the highest.
func TestIneligibleProcessIsNotWaitedFor(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
		Kind: election.Beat, From: 4, To: self, Term: 10, List: []election.ID{2, election.None, 5},
		Hold: election.Hold{Life: 1, Version: 1, Held: true},
	}})
	receiveResigned(h, 4, 10, election.None, election.Hold{Ineligible: true})
	if h.countSent(election.Beat) == 0 {
		t.Errorf("got %v, want a claim of 3 at once", h.captured)
	}

	again := newFollower(t, office.Majority, nil)
	receiveResigned(again, 4, 10, election.None, election.Hold{})
	if again.countSent(election.Beat) != 0 {
		t.Error("got a claim of 3 at once, want none while 4 and 5 are eligible")
	}
}

// TestProcessThatIsEligibleAgainIsWaitedFor: 5 was ineligible, and has sent a
// message since.
func TestProcessThatIsEligibleAgainIsWaitedFor(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.receive(5, election.Probe, 10, election.Hold{Ineligible: true})
	receiveResigned(h, 4, 10, election.None, election.Hold{Ineligible: true})
	h.receive(5, election.Probe, 10, election.Hold{})
	if h.countSent(election.Beat) != 0 {
		t.Error("got a claim of 3, want none while 5 is eligible again")
	}
}

// TestNamedSuccessorComesFirst: the named successor precedes processes that
// outrank it.
func TestNamedSuccessorComesFirst(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.input(self, election.Input{Kind: election.Suspect, Peer: 5})
	receiveResigned(h, 4, 10, 1, election.Hold{Ineligible: true})
	if h.countSent(election.Beat) != 0 {
		t.Error("got a claim of 3, the highest, at once, want none before that of 1, the named successor")
	}
	h.receive(1, election.Beat, 11, election.Hold{Held: true})
	h.wantFollowed(1, self)

	lost := newFollower(t, office.Majority, nil)
	lost.input(self, election.Input{Kind: election.Suspect, Peer: 5})
	receiveResigned(lost, 4, 10, 1, election.Hold{Ineligible: true})
	lost.advance(suspicionTimeout)
	if lost.countSent(election.Beat) == 0 {
		t.Error("got no claim of 3, want one since 1 doesn't claim the office")
	}
}
