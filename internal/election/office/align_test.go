package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// TestAlignedHeartbeats: the coordinator sends its BEATs at multiples of the heartbeat,
// whenever its tenure began, and announces the tenure at once.
func TestAlignedHeartbeats(t *testing.T) {
	for began := election.Tick(1); began <= heartbeat; began++ {
		var sent []election.Tick
		g := &group{t: t, mode: office.Majority, now: began - 1}
		g.configure = func(c *office.Config) { c.AlignHeartbeats = true }
		g.drop = func(m *election.Message) bool {
			if m.Kind == election.Beat && m.Hold.Held && m.To == 1 {
				sent = append(sent, g.now)
			}
			return false
		}
		g.startAgreed(3, newRoster(t, 1, 1, 2, 3))
		g.advance(10 * heartbeat)
		g.wantHolder(3)
		if len(sent) == 0 || sent[0] > began {
			t.Fatalf("began at %d: got BEATs at %d, want the first one at once", began, sent)
		}
		for i, at := range sent[1:] {
			if at%heartbeat != 0 || at-sent[i] > heartbeat {
				t.Errorf("began at %d: got BEATs at %d, want each multiple of %d", began, sent, heartbeat)
				break
			}
		}
	}
}
