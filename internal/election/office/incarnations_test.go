package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The coordinator runs again, and the report of its former end arrives late. The grant to it stays in force.
func TestEndOfEarlierIncarnationIsNoLoss(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		h := newFollower(t, mode, nil)
		if mode != office.Available {
			h.advance(3 * lease)
			h.receive(4, election.Beat, term(30), election.Hold{Life: 2})
		}
		h.receive(4, election.Beat, term(30), election.Hold{Held: true, Life: 2})
		h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
		expect.Equalf(t, h.machines[self].Status().Coordinator, 4, "%v: coordinator after the report of life 1", mode)
		if mode != office.Available {
			h.receive(5, election.Beat, term(31), election.Hold{})
			h.wantAnswer(5, election.Deny)
		}
		h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 2})
		expect.Equalf(t, h.machines[self].Status().Coordinator, election.None, "%v: coordinator after that of life 2", mode)
	}
}

// A pending request was sent by an incarnation that has ended since. The grant names that incarnation.
func TestLateGrantNamesRequestingIncarnation(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(3 * lease)
		h.receive(4, election.Beat, term(30), election.Hold{})
		h.wantAnswer(4, election.Grant)
		h.receive(5, election.Beat, term(31), election.Hold{Life: 1})
		h.wantAnswer(5, election.Deny)
		h.receive(5, election.Probe, 0, election.Hold{Life: 2})
		h.captured = nil
		h.advance(2 * lease)
		for _, m := range h.captured {
			if m.Kind == election.Grant && m.To == 5 {
				expect.Equalf(t, m.Hold.RequesterLife, 1, "GRANT for incarnation")
				return
			}
		}
		t.Error("got no grant of the pending request, want one")
	})
}

// A late answer to an earlier incarnation of the process doesn't report what that was granted. The highest granted term
// is a higher one then.
func TestAnswerToEarlierIncarnationDoesntLowerBound(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(suspicionTimeout)
		for _, id := range []election.ID{1, 2, 5} {
			h.probedBy(id, election.None, election.Hold{Held: true, HighestGranted: term(40)})
			h.receive(id, election.Grant, term(40), election.Hold{RequesterLife: 7, HighestGranted: term(10)})
		}
		h.captured = nil
		h.advance(2 * stagger)
		must.Equalf(t, h.countEvents(self, election.Started), 1, "elections")
		for _, m := range h.captured {
			if m.Kind == election.Election {
				expect.Equalf(t, m.Term, term(41), "term of the election, want the one above those that were granted")
			}
		}
	})
}

// TestSuccessorIsFollowedWhenFormerCoordinatorHasEnded: the coordinator has ended. The BEAT
// of its successor arrives before this process notices that.
func TestSuccessorIsFollowedWhenFormerCoordinatorHasEnded(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority} {
		t.Run(mode.String(), func(t *testing.T) {
			h := newFollower(t, mode, nil)
			h.receive(5, election.Beat, term(11), election.Hold{})
			h.receive(5, election.Beat, term(11), election.Hold{Held: true})
			h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
			if got := h.machines[self].Status(); got.Coordinator != 5 || got.Term != term(11) {
				t.Errorf("got coordinator %d in term %d, want 5 in term 11", got.Coordinator, got.Term)
			}
		})
	}
}

// A process follows a false coordinator in a high term, which then falls silent. It follows the
// true one, whose term is lower, as soon as that answers a probe.
func TestFalseTermIsForgotten(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, nil)
		h.advance(2 * lease)
		h.receive(5, election.Beat, term(50), election.Hold{Held: true})
		h.wantFollowed(5, self)
		h.advance(2 * lease)
		h.receive(4, election.Beat, term(30), election.Hold{Held: true})
		h.wantFollowed(election.None, self)
		answer := election.Hold{Held: true, Sent: h.now, RequesterLife: 1}
		h.pass(election.Message{Kind: election.Probe, From: 4, Term: term(30), Subject: 4, Hold: answer})
		h.receive(4, election.Beat, term(30), election.Hold{Held: true})
		h.wantFollowed(4, self)
	})
}

// confirm delivers PROBEs of processes that follow a coordinator, by default of 1 and 2,
// which are a majority of five together with the coordinator.
func (h *harness) confirm(coordinator election.ID, term election.Term, by ...election.ID) {
	h.t.Helper()
	if len(by) == 0 {
		by = []election.ID{1, 2}
	}
	for _, from := range by {
		h.pass(election.Message{Kind: election.Probe, From: from, Term: term, Subject: coordinator})
	}
}

// A process that restarted grants nothing for a lease. It believes that another one holds
// the office when a majority says so.
func TestCoordinatorIsFollowedWhenMajorityConfirmsIt(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		restart := func() *harness {
			h := newFollower(t, mode, nil)
			h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
			h.receive(5, election.Beat, term(11), election.Hold{Held: true})
			h.wantFollowed(election.None, self)
			expect.Equalf(t, h.countSent(election.Probe), 4, "probes, one to each other process")
			return h
		}
		asked := restart()
		asked.receive(5, election.Beat, term(11), election.Hold{Held: true})
		expect.Equalf(t, asked.countSent(election.Probe), 0, "probes after the next BEAT")
		asked.confirm(5, term(10))
		asked.confirm(4, term(11))
		asked.confirm(5, term(11), 5, 1)
		asked.wantFollowed(election.None, self)
		asked.confirm(5, term(11), 2)
		asked.wantFollowed(5, self)

		stale := restart()
		stale.confirm(5, term(11), 1)
		stale.advance(suspicionTimeout)
		stale.receive(5, election.Beat, term(11), election.Hold{Held: true})
		stale.confirm(5, term(11), 2)
		stale.wantFollowed(election.None, self)
		stale.confirm(5, term(11), 1)
		stale.wantFollowed(5, self)

		resigned := restart()
		resigned.receive(5, election.Resigned, term(11), election.Hold{})
		resigned.confirm(5, term(11))
		resigned.wantFollowed(election.None, self)

		late := restart()
		late.advance(heartbeat)
		late.confirm(5, term(11))
		late.wantFollowed(election.None, self)
		late.receive(5, election.Beat, term(11), election.Hold{Held: true})
		late.wantFollowed(5, self)

		alone := restart()
		alone.advance(lease)
		alone.receive(5, election.Beat, term(11), election.Hold{Held: true})
		alone.wantFollowed(5, self)
	})
}
