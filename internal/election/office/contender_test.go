package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
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
