package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// TestPausedFollowerReadsItsMessagesFirst: a follower was paused for longer than the
// suspicion timeout. Its timer fires before it reads the BEATs that have arrived.
func TestPausedFollowerReadsItsMessagesFirst(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.now += suspicionTimeout + heartbeat
	h.input(self, election.Input{Kind: election.TimePassed})
	if got := h.machines[self].Status().Coordinator; got != 4 {
		t.Errorf("before it reads: got coordinator %d, want 4", got)
	}
	h.receive(4, election.Beat, 10, election.Hold{Held: true, Sent: h.now})
	if got := h.machines[self].Status().Coordinator; got != 4 {
		t.Errorf("got coordinator %d, want 4", got)
	}
	if h.countSent(election.Probe) > 0 {
		t.Error("the follower sent probes, as if it knew no coordinator")
	}
}

// TestSilentCoordinatorIsSuspectedAfterPause: the coordinator crashed while the follower
// was paused.
func TestSilentCoordinatorIsSuspectedAfterPause(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.now += suspicionTimeout + heartbeat
	for range 3 {
		h.input(self, election.Input{Kind: election.TimePassed})
		h.now += heartbeat // late again each time
	}
	if got := h.machines[self].Status().Coordinator; got != election.None {
		t.Errorf("got coordinator %d, want none", got)
	}
}
