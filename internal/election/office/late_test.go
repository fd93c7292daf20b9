package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestPausedFollowerReadsItsMessagesFirst: a follower was paused for longer than the
// suspicion timeout. Its timer fires before it reads the BEATs that have arrived.
func TestPausedFollowerReadsItsMessagesFirst(t *testing.T) {
	h := newFollower(t, office.Majority, nil)
	h.now += suspicionTimeout + heartbeat
	h.input(self, election.Input{Kind: election.TimePassed})
	expect.Equalf(t, h.machines[self].Status().Coordinator, 4, "before it reads: coordinator")
	h.receive(4, election.Beat, 10, election.Hold{Held: true, Sent: h.now})
	expect.Equalf(t, h.machines[self].Status().Coordinator, 4, "coordinator")
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
	expect.Equalf(t, h.machines[self].Status().Coordinator, election.None, "coordinator")
}
