package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// dropExceptTo cuts a process off from all others but one.
func dropExceptTo(id, one election.ID) func(*election.Message) bool {
	return func(m *election.Message) bool { return crosses(m, id) && m.From != one && m.To != one }
}

// The highest process reaches only the coordinator. It would win any election,
// but never acquire the office.
func TestNoHandOverToProcessWithoutMajority(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode, configure: alwaysPreempt, drop: dropExceptTo(5, 4)}
		g.startAgreed(4, newRoster(t, 1, 1, 2, 3, 4, 5))
		g.advance(20 * lease)
		g.wantHolder(4)
		expect.Equalf(t, g.countEvents(4, election.StopRequested), 0, "requests to stop")
		g.drop = nil
		g.advance(3 * heartbeat)
		g.wantHolder(5)
	})
}

// The same if there is no coordinator: the others must not wait for that
// process forever.
func TestProcessWithoutMajorityIsNotWaitedFor(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 5, newRoster(t, 1, 1, 2, 3, 4, 5), alwaysPreempt)
		g.advance(heartbeat)
		g.drop = dropExceptTo(5, 4)
		g.advance(10 * lease)
		g.wantHolder(4)
		g.wantFollowed(4, 1, 2, 3, 5)
		g.drop = nil
		g.advance(3 * heartbeat)
		g.wantHolder(5)
	})
}

// A process that was cut off from all others reconnects.
func TestReconnectedProcessDoesntDisturbCoordinator(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(heartbeat)
		g.drop = func(m *election.Message) bool { return crosses(m, 1) }
		g.advance(20 * lease)
		g.drop = nil
		g.advance(2 * lease)
		g.wantHolder(3)
		g.wantFollowed(3, 1, 2)
		expect.Equalf(t, g.countEvents(3, election.TenureStarted), 1, "process 3: tenures")
		if n := g.countEvents(1, election.Started); n > 1 { // one before it suspects all others
			t.Errorf("process 1: got %d elections, want at most 1", n)
		}
	})
}

// A process receives no messages, but all others receive its messages.
func TestProcessThatReceivesNothingDoesntDisturbCoordinator(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 2, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(heartbeat)
		g.drop = func(m *election.Message) bool { return m.To == 3 }
		g.advance(20 * lease)
		g.wantHolder(2)
		g.drop = nil
		g.advance(2 * lease)
		g.wantHolder(2)
		g.wantFollowed(2, 1, 3)
		expect.Equalf(t, g.countEvents(2, election.TenureStarted), 1, "process 2: tenures")
	})
}
