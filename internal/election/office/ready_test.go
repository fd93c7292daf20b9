package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// The clock of the highest process is ahead of the others, which have just granted term 20 to the
// coordinator. It is ready for the office when a majority can grant term 21.
func TestProcessIsReadyWhenClocksOfMajorityAllowNextTerm(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
		h.configure = func(c *office.Config) {
			c.MemoryLost, c.Term, c.Coordinator = false, 20, 2
			c.Clock = election.TermClock{AtBoot: 40, TicksPerTerm: lease}
		}
		h.start(self, newRoster(t, 1, 1, 2, self), nil)
		h.advance(1)
		reportClocks := func(one, two election.Term) {
			for id, reading := range map[election.ID]election.Term{1: one, 2: two} {
				h.receive(id, election.Probe, 20, election.Hold{Held: true, Sent: h.now, RequesterLife: 1, HighestGranted: 20, Ceiling: reading})
			}
		}
		wantReady := func(want bool, clocks string) {
			t.Helper()
			h.receive(2, election.Beat, 20, election.Hold{Held: true, Sent: h.now})
			h.wantAnswer(2, election.Grant)
			if got := h.captured[len(h.captured)-1].Hold.Ready; got != want {
				t.Errorf("%s: got ready %t, want %t", clocks, got, want)
			}
		}
		reportClocks(20, 20)
		wantReady(false, "clocks of both others behind")
		reportClocks(21, 20)
		wantReady(true, "clock of one other behind")
		reportClocks(20, 20)
		wantReady(false, "clocks of both others behind again")
		for h.now < lease {
			reportClocks(0, 0)
			wantReady(false, "answers of an older release after that")
			h.advance(min(heartbeat, lease-h.now))
		}
		reportClocks(0, 0)
		wantReady(true, "one term later")
	})
}
