package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// An operator whose clock is ahead publishes a list. Its floor must not keep a group
// from electing whose clocks are right.
func TestAFloorAheadOfAllClocks(t *testing.T) {
	t.Skip("fails: nobody leads until the members' clocks have come as far as the operator's")
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode}
		wall(w, nil)
		first := list(t, 1, 1, 2, 3)
		for _, id := range []election.ID{3, 2, 1} {
			w.start(id, first, nil)
		}
		w.pass(4 * perTerm)
		w.wantHolder(3)
		w.adopt(list(t, 2, 1, 2, 3).Succeed(first, 1000), 1, 2, 3)
		w.pass(4 * perTerm)
		w.wantHolder(3)
		w.crash(3, true)
		w.pass(100 * perTerm)
		w.wantHolder(2)
	})
}
