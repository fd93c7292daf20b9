package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election/office"
)

// The coordinator has crashed. Process 1 has adopted a list in which 4 replaces it. Process 2
// hasn't received that list yet, so 1 can't grant its claim. But 2 can grant that of 1.
func TestClaimUnderOlderListDoesntBlockOthers(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		first := newRoster(t, 1, 1, 2, 3)
		second := newRoster(t, 2, 1, 2, 4).Succeed(first, 0)
		g := newGroup(t, mode, 3, first, nil)
		g.advance(heartbeat)
		g.adopt(second, 1)
		g.advance(heartbeat)
		g.crash(3, true)
		if took := g.untilHolder(20 * lease); took > 3*lease {
			t.Errorf("got holder %d after %d ticks, want one within %d", g.holders(), took, 3*lease)
		}
	})
}
