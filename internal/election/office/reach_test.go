package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// onlyTo cuts a process off from all others but one.
func onlyTo(id, one election.ID) func(*election.Message) bool {
	return func(m *election.Message) bool { return between(m, id) && m.From != one && m.To != one }
}

// The highest process reaches the coordinator and nobody else. It would win any
// election, and never the office.
func TestTheOfficeIsntHandedToAProcessThatReachesNoMajority(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode, tuned: always, cut: onlyTo(5, 4)}
		w.agree(4, list(t, 1, 1, 2, 3, 4, 5))
		w.pass(20 * lease)
		w.wantHolder(4)
		if n := w.count(4, election.StopRequested); n != 0 {
			t.Errorf("the coordinator's application was stopped %d times", n)
		}
		w.cut = nil
		w.pass(3 * heartbeat)
		w.wantHolder(5)
	})
}

// The same when there is no coordinator: the others don't wait for it for ever.
func TestAProcessThatReachesNoMajorityIsntWaitedFor(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 5, list(t, 1, 1, 2, 3, 4, 5), always)
		w.pass(heartbeat)
		w.cut = onlyTo(5, 4)
		w.pass(10 * lease)
		w.wantHolder(4)
		w.wantFollowed(4, 1, 2, 3, 5)
		w.cut = nil
		w.pass(3 * heartbeat)
		w.wantHolder(5)
	})
}

// One that is cut off altogether comes back.
func TestAProcessThatWasCutOffDoesntDisturbTheCoordinator(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 3, list(t, 1, 1, 2, 3), nil)
		w.pass(heartbeat)
		w.cut = func(m *election.Message) bool { return between(m, 1) }
		w.pass(20 * lease)
		w.cut = nil
		w.pass(2 * lease)
		w.wantHolder(3)
		w.wantFollowed(3, 1, 2)
		if n := w.count(3, election.TenureStarted); n != 1 {
			t.Errorf("process 3 began %d tenures, want one", n)
		}
		if n := w.count(1, election.Started); n > 1 { // one before it suspects everyone else, too
			t.Errorf("process 1 started %d elections all by itself", n)
		}
	})
}

// It hears nothing of the coordinator, and everyone hears it.
func TestAProcessThatIsHeardAndHearsNothingDoesntDisturbTheCoordinator(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 2, list(t, 1, 1, 2, 3), nil)
		w.pass(heartbeat)
		w.cut = func(m *election.Message) bool { return m.To == 3 }
		w.pass(20 * lease)
		w.wantHolder(2)
		w.cut = nil
		w.pass(2 * lease)
		w.wantHolder(2)
		w.wantFollowed(2, 1, 3)
		if n := w.count(2, election.TenureStarted); n != 1 {
			t.Errorf("process 2 began %d tenures, want one", n)
		}
	})
}
