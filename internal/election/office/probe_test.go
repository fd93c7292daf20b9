package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// newIsolated returns process 3 of a number of members. It knows no coordinator and receives no messages.
func newIsolated(t *testing.T, mode office.Mode, members int) *harness {
	t.Helper()
	ids := make([]election.ID, members)
	for i := range ids {
		ids[i] = election.ID(i + 1)
	}
	h := newHarness(t, mode, nil)
	h.start(self, newRoster(t, 1, ids...), nil)
	h.advance(1)
	return h
}

// takeProbes returns how often each process was probed since the last call.
func (h *harness) takeProbes() map[election.ID]int {
	times := map[election.ID]int{}
	for _, m := range h.captured {
		if m.Kind == election.Probe {
			times[m.To]++
		}
	}
	h.captured = nil
	return times
}

func TestSmallGroupIsProbedAtOnce(t *testing.T) {
	h := newIsolated(t, office.Majority, 17)
	for range 3 {
		h.advance(heartbeat)
		expect.Equalf(t, len(h.takeProbes()), 16, "probed processes in a heartbeat")
	}
}

func TestLargeGroupIsProbedInTurns(t *testing.T) {
	const members, turns, most = 100, 7, 16
	h := newIsolated(t, office.Majority, members)
	for round := range 2 {
		all := map[election.ID]int{}
		for range turns {
			h.advance(heartbeat)
			probed := h.takeProbes()
			expect.AtMostf(t, len(probed), most, "probed processes in a heartbeat")
			for id, times := range probed {
				all[id] += times
			}
		}
		for id := election.ID(1); id <= members; id++ {
			if id != self && all[id] != 1 {
				t.Errorf("round %d, process %d: got %d probes, want 1", round, id, all[id])
			}
		}
	}
}

// The suspicion timeout is multiplied by the number of turns.
func TestSuspicionTimeoutGrowsWithProbeTurns(t *testing.T) {
	const turns = 7
	h := newIsolated(t, office.Majority, 100)
	h.advance(suspicionTimeout*turns - 2)
	expect.Equalf(t, h.countEvents(self, election.MarkedCrashed), 0, "suspects before their turns are over")
	h.receive(1, election.Probe, 0, election.Hold{})
	h.advance(2)
	expect.Equalf(t, h.countEvents(self, election.MarkedCrashed), 98, "suspects (all except the one that sent a probe)")
	h.advance(suspicionTimeout * turns)
	expect.Equalf(t, h.countEvents(self, election.MarkedCrashed), 99, "suspects")
}
