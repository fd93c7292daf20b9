package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// lateMessage is a message that arrives later.
type lateMessage struct {
	at      election.Tick
	message election.Message
}

// TestHighestMemberWithSlowLinkDoesntPreventElections: each message from and to the highest member takes so
// long that it can't renew a tenure. The others elect one of them.
func TestHighestMemberWithSlowLinkDoesntPreventElections(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, slow := range []election.Tick{30, 36, 40, 44, 48} {
			g := &group{t: t, mode: mode}
			g.configure = func(c *office.Config) { c.Policy = office.Always }
			var late []lateMessage
			g.capture = func(m *election.Message) bool {
				if !crosses(m, 5) {
					return false
				}
				late = append(late, lateMessage{g.now + slow, *m})
				return true
			}
			roster := newRoster(t, 1, 1, 2, 3, 4, 5)
			for _, m := range roster.Ring() {
				g.start(m.ID, roster, nil)
			}
			vacant, began := 0, len(g.tokens)
			for g.now < 100*lease {
				g.advance(1)
				g.captured = nil
				for len(late) > 0 && late[0].at <= g.now {
					g.deliver(late[0].message)
					late = late[1:]
				}
				if g.now == 20*lease {
					began = len(g.tokens)
				}
				if g.now > 20*lease && len(g.holders()) == 0 {
					vacant++
				}
			}
			if tenures := len(g.tokens) - began; vacant > int(2*lease) || tenures > 2 {
				t.Errorf("one way takes %d ticks: got no coordinator for %d of %d ticks, and %d tenures, want at most two leases and two tenures",
					slow, vacant, 80*lease, tenures)
			}
		}
	})
}
