package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// A process recovers from the answers to the probes that it sent after the lease of its
// earlier grants. Other answers that arrive later may report less, and must not count: a GRANT
// doesn't report the granted term itself, and here it is that of an earlier incarnation.
func TestOtherAnswersDontLowerRecoveredBound(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, self)
		g := &group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}
		g.configure = func(c *office.Config) {
			c.Clock = election.TermClock{AtBoot: 1000, Boot: g.now, TicksPerTerm: heartbeat}
		}
		g.start(self, roster, nil)
		g.crash(self, true)
		g.start(self, roster, nil)
		h := &harness{g}
		sentTooEarly := g.now
		g.advance(2 * lease)
		answer := func(from election.ID, kind election.Kind, life uint32, sent election.Tick, highest election.Term) {
			h.receive(from, kind, 60, election.Hold{
				Held: kind == election.Probe, Sent: sent, RequesterLife: life, Roster: 1, HighestGranted: highest,
			})
		}
		answer(1, election.Probe, 2, g.now, 50)
		answer(1, election.Grant, 1, g.now, 2)
		answer(1, election.Grant, 2, g.now, 2)
		answer(1, election.Probe, 1, g.now, 2)
		answer(1, election.Probe, 2, sentTooEarly, 2)
		answer(2, election.Probe, 2, g.now, 2)
		h.captured = nil
		h.probedBy(1, election.None, election.Hold{})
		for _, m := range h.captured {
			if m.Kind == election.Probe && m.Hold.Held {
				if got := m.Hold.HighestGranted; got != 50 {
					t.Errorf("got %d as the highest term that was granted, want 50", got)
				}
				return
			}
		}
		t.Error("got no answer to a probe")
	})
}
