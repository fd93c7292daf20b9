package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

func always(c *office.Config) { c.Policy = office.Always }

func TestTheSuccessorStartsAfterTheIncumbentsApplicationHasStopped(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode, tuned: always, busy: true}
		w.agree(2, list(t, 1, 1, 2, 3))
		if n := w.count(2, election.StopRequested); n != 1 {
			t.Fatalf("process 2 told its application to stop %d times, want once", n)
		}
		w.pass(drain - 2)
		w.wantHolder(2)
		term := w.all[2].Status().Term
		w.tell(2, election.Input{Kind: election.Stopped, Term: term - 1})
		w.wantHolder(2) // that was about an earlier tenure
		w.tell(2, election.Input{Kind: election.Stopped, Term: term})
		w.pass(1)
		w.wantHolder(3)
		w.wantFollowed(3, 1, 2, 3)
	})
}

func TestAnApplicationThatDoesntStopIsWaitedForAsLongAsTheDrainLasts(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := &town{t: t, mode: mode, tuned: always, busy: true}
		w.agree(2, list(t, 1, 1, 2, 3))
		w.pass(drain - 1)
		w.wantHolder(2)
		w.pass(2)
		w.wantHolder(3)
	})
}

func TestAnApplicationThatDiesWhileItStopsIsntRevivedByTheStepDown(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 3, list(t, 1, 1, 2, 3), always)
		w.pass(heartbeat)
		w.busy = true
		w.tell(3, election.Input{Kind: election.StepDown})
		w.tell(3, election.Input{Kind: election.BecomeIneligible})
		w.pass(4 * stable)
		w.wantHolder(2)
		w.tell(3, election.Input{Kind: election.BecomeEligible})
		w.pass(4 * stable)
		w.wantHolder(3)
	})
}

// The office is lost while the application stops for a step-down, and won again.
// The next hand-over doesn't keep the process away from the office.
func TestAStepDownThatTheLeaseOvertookIsForgotten(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		roster := list(t, 1, 1, 2, 3)
		w := settle(t, mode, 2, roster, func(c *office.Config) { c.Policy, c.DrainTimeout = office.Always, 10*lease })
		w.all[3], w.all[2] = nil, nil
		w.start(2, roster, nil)
		w.pass(5 * lease)
		w.wantHolder(2)
		w.busy = true
		w.tell(2, election.Input{Kind: election.StepDown})
		w.cut = func(m *election.Message) bool { return between(m, 2) }
		w.pass(2 * lease)
		w.cut, w.busy = nil, false
		w.pass(4 * lease)
		w.wantHolder(2)
		w.start(3, roster, nil)
		for n := 0; !slices.Equal(w.holders(), []election.ID{3}) && n < 400; n++ {
			w.pass(1)
		}
		w.wantHolder(3)
		w.crash(3, true)
		w.pass(2 * patience)
		if mode == office.Strict {
			w.pass(lease)
		}
		w.wantHolder(2)
	})
}

func TestWhoSteppedDownStaysAwayForAWhile(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 3, list(t, 1, 1, 2, 3), always)
		w.pass(heartbeat)
		w.tell(3, election.Input{Kind: election.StepDown})
		w.pass(6) // 3 doesn't answer the election
		w.wantHolder(2)
		w.pass(stable - 8)
		w.wantHolder(2)
		w.pass(2 * heartbeat)
		w.wantHolder(3)
	})
}

func TestAStepDownNeedsSomeoneToTakeOver(t *testing.T) {
	guarded(t, func(t *testing.T, mode office.Mode) {
		w := settle(t, mode, 3, list(t, 1, 1, 2, 3), nil)
		w.tell(1, election.Input{Kind: election.BecomeIneligible})
		w.tell(2, election.Input{Kind: election.BecomeIneligible})
		w.pass(heartbeat)
		for _, peer := range []election.ID{election.None, 1, 2, 9} {
			w.tell(3, election.Input{Kind: election.StepDown, Peer: peer})
		}
		if w.count(3, election.StopRequested) != 0 || w.count(3, election.Refused) != 4 {
			t.Errorf("%d stops, %d refusals, want none and 4", w.count(3, election.StopRequested), w.count(3, election.Refused))
		}
		w.tell(2, election.Input{Kind: election.StepDown}) // it isn't the coordinator
		w.wantHolder(3)
	})
}

func TestAPolicySaysWhenAHigherProcessTakesOver(t *testing.T) {
	for _, test := range []struct {
		policy office.Policy
		before election.Tick // when it hasn't happened yet
		after  election.Tick // when it has; Never, if it doesn't
	}{
		{office.Always, 0, 2 * heartbeat},
		{office.WhenStable, stable - heartbeat, stable + 2*heartbeat},
		{office.NeverPreempt, 10 * stable, election.Never},
	} {
		guarded(t, func(t *testing.T, mode office.Mode) {
			w := settle(t, mode, 2, list(t, 1, 1, 2, 3), func(c *office.Config) { c.Policy = test.policy })
			if test.before > 0 {
				w.pass(test.before)
				w.wantHolder(2)
			}
			if test.after != election.Never {
				w.pass(test.after - test.before)
				w.wantHolder(3)
			}
		})
	}
}
