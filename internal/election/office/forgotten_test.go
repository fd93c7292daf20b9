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
			c.Clock = election.TermClock{AtBoot: 1000, Boot: g.now, TicksPerEpoch: heartbeat}
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
		h.wantBound(50)
	})
}

// wantBound checks what the process answers to a probe: a bound on the terms that it has granted.
func (h *harness) wantBound(want election.Term) {
	h.t.Helper()
	h.captured = nil
	h.probedBy(1, election.None, election.Hold{})
	for _, m := range h.captured {
		if m.Kind == election.Probe && m.Hold.Held {
			if got := m.Hold.HighestGranted; got != want {
				h.t.Errorf("got %d as the highest term that was granted, want %d", got, want)
			}
			return
		}
	}
	h.t.Error("got no answer to a probe")
}

// Two conditions for an answer to count for the recovery. The member had granted nothing when it sent an
// answer before the end of the wait, but may have granted later. And with another list, a tenure may need no
// majority that includes the member.
func TestOnlyAnswersAfterWaitUnderSameListCountForRecovery(t *testing.T) {
	reading := election.Epoch(1000).Last() // the bound until the process has recovered
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, test := range []struct {
			name string
			sent election.Tick // after the end of the wait
			list uint32
			want election.Term
		}{
			{"probe sent before the end of the wait", -1, 1, reading},
			{"another list", 0, 2, reading},
			{"both conditions met", 0, 1, 50},
		} {
			t.Run(test.name, func(t *testing.T) {
				h := &harness{&group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}}
				h.start(self, newRoster(t, 1, 1, 2, self), func(c *office.Config) {
					c.Clock = election.TermClock{AtBoot: 1000, TicksPerEpoch: heartbeat}
				})
				h.advance(lease + 1)
				for _, from := range []election.ID{1, 2} {
					h.receive(from, election.Probe, 60, election.Hold{
						Held: true, Sent: lease + test.sent, RequesterLife: 1, Roster: test.list, HighestGranted: 50,
					})
				}
				h.wantBound(test.want)
			})
		}
	})
}
