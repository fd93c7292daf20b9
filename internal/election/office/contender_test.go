package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestSuccessorIsFollowedWhenFormerCoordinatorHasEnded: the coordinator has ended. The BEAT
// of its successor arrives before this process notices that.
func TestSuccessorIsFollowedWhenFormerCoordinatorHasEnded(t *testing.T) {
	for _, mode := range []office.Mode{office.Available, office.Majority} {
		t.Run(mode.String(), func(t *testing.T) {
			h := newFollower(t, mode, nil)
			h.receive(5, election.Beat, 11, election.Hold{})
			h.receive(5, election.Beat, 11, election.Hold{Held: true})
			h.input(self, election.Input{Kind: election.Ended, Peer: 4, Life: 1})
			if got := h.machines[self].Status(); got.Coordinator != 5 || got.Term != 11 {
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
		h.receive(5, election.Beat, 50, election.Hold{Held: true})
		h.wantFollowed(5, self)
		h.advance(2 * lease)
		h.receive(4, election.Beat, 30, election.Hold{Held: true})
		h.wantFollowed(election.None, self)
		h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
			Kind: election.Probe, From: 4, To: self, Term: 30, Subject: 4, Hold: election.Hold{Life: 1, Held: true, Sent: h.now, RequesterLife: 1},
		}})
		h.receive(4, election.Beat, 30, election.Hold{Held: true})
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
		h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
			Kind: election.Probe, From: from, To: self, Term: term, Subject: coordinator, Hold: election.Hold{Life: 1},
		}})
	}
}

// A process that restarted grants nothing for a lease. It believes that another one holds
// the office when a majority says so.
func TestCoordinatorIsFollowedWhenMajorityConfirmsIt(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		restart := func() *harness {
			h := newFollower(t, mode, nil)
			h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
			h.receive(5, election.Beat, 11, election.Hold{Held: true})
			h.wantFollowed(election.None, self)
			if n := h.countSent(election.Probe); n != 4 {
				t.Errorf("got %d probes, want one to each other process", n)
			}
			return h
		}
		asked := restart()
		asked.receive(5, election.Beat, 11, election.Hold{Held: true})
		expect.Equalf(t, asked.countSent(election.Probe), 0, "probes after the next BEAT")
		asked.confirm(5, 10)
		asked.confirm(4, 11)
		asked.confirm(5, 11, 5, 1)
		asked.wantFollowed(election.None, self)
		asked.confirm(5, 11, 2)
		asked.wantFollowed(5, self)

		resigned := restart()
		resigned.receive(5, election.Resigned, 11, election.Hold{})
		resigned.confirm(5, 11)
		resigned.wantFollowed(election.None, self)

		late := restart()
		late.advance(heartbeat)
		late.confirm(5, 11)
		late.wantFollowed(election.None, self)
		late.receive(5, election.Beat, 11, election.Hold{Held: true})
		late.wantFollowed(5, self)

		alone := restart()
		alone.advance(lease)
		alone.receive(5, election.Beat, 11, election.Hold{Held: true})
		alone.wantFollowed(5, self)
	})
}
