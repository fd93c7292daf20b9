package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func alwaysPreempt(c *office.Config) { c.Policy = office.Always }

func TestSuccessorStartsAfterApplicationStopped(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode, configure: alwaysPreempt, appsKeepRunning: true}
		g.startAgreed(2, newRoster(t, 1, 1, 2, 3))
		g.advance(heartbeat) // process 3 probes whether it reaches a majority
		must.Equalf(t, g.countEvents(2, election.StopRequested), 1, "requests to stop")
		g.advance(drainTimeout - 2)
		g.wantHolder(2)
		term := g.machines[2].Status().Term
		g.input(2, election.Input{Kind: election.Stopped, Term: term - 1})
		g.wantHolder(2) // that was an earlier tenure
		g.input(2, election.Input{Kind: election.Stopped, Term: term})
		g.advance(1)
		g.wantHolder(3)
		g.wantFollowed(3, 1, 2, 3)
	})
}

func TestOfficeIsHandedOverAfterDrainTimeout(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode, configure: alwaysPreempt, appsKeepRunning: true}
		g.startAgreed(2, newRoster(t, 1, 1, 2, 3))
		g.advance(heartbeat + drainTimeout - 1)
		g.wantHolder(2)
		g.advance(2)
		g.wantHolder(3)
	})
}

func TestEndOfStepDownDoesntReviveDeadApplication(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), alwaysPreempt)
		g.advance(heartbeat)
		g.appsKeepRunning = true
		g.input(3, election.Input{Kind: election.StepDown})
		g.input(3, election.Input{Kind: election.BecomeIneligible})
		g.advance(4 * stablePeriod)
		g.wantHolder(2)
		g.input(3, election.Input{Kind: election.BecomeEligible})
		g.advance(4 * stablePeriod)
		g.wantHolder(3)
	})
}

// The office is lost while the application stops for a step-down, and is
// acquired again. The next hand-over must not make the process ineligible.
func TestStepDownEndsWithLostTenure(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, 3)
		g := newGroup(t, mode, 2, roster, func(c *office.Config) { c.Policy, c.DrainTimeout = office.Always, 10*lease })
		g.machines[3], g.machines[2] = nil, nil
		g.start(2, roster, nil)
		g.advance(5 * lease)
		g.wantHolder(2)
		g.appsKeepRunning = true
		g.input(2, election.Input{Kind: election.StepDown})
		before := g.countEvents(2, election.Refused)
		g.input(2, election.Input{Kind: election.StepDown})
		expect.Equalf(t, g.countEvents(2, election.Refused), before+1, "refusals (it steps down already)")
		g.drop = func(m *election.Message) bool { return crosses(m, 2) }
		g.advance(2 * lease)
		g.drop, g.appsKeepRunning = nil, false
		g.advance(4 * lease)
		g.wantHolder(2)
		g.start(3, roster, nil)
		for n := 0; !slices.Equal(g.holders(), []election.ID{3}) && n < 400; n++ {
			g.advance(1)
		}
		g.wantHolder(3)
		g.crash(3, true)
		g.advance(2 * suspicionTimeout)
		if mode == office.Strict {
			g.advance(lease)
		}
		g.wantHolder(2)
	})
}

func TestSteppedDownProcessStaysIneligible(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), alwaysPreempt)
		g.advance(heartbeat)
		g.input(3, election.Input{Kind: election.StepDown})
		g.advance(6) // 3 doesn't answer the ELECTION
		g.wantHolder(2)
		g.advance(stablePeriod - 8)
		g.wantHolder(2)
		g.advance(2 * heartbeat)
		g.wantHolder(3)
	})
}

// Members 5 and 4 have stepped down, and 3 crashes. A process that has stepped down doesn't take over from
// another one for the stable period, which may be a day, but may be elected again.
func TestStepDownsDontLeaveGroupWithoutCoordinator(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		const day = 1000 * lease
		g := newGroup(t, mode, 5, newRoster(t, 1, 1, 2, 3, 4, 5),
			func(c *office.Config) { c.Policy, c.StablePeriod = office.Always, day })
		g.advance(heartbeat)
		g.input(5, election.Input{Kind: election.StepDown})
		g.advance(heartbeat)
		g.wantHolder(4)
		g.input(4, election.Input{Kind: election.StepDown})
		g.advance(10 * lease)
		g.wantHolder(3)
		for _, id := range []election.ID{1, 2} {
			g.input(id, election.Input{Kind: election.BecomeIneligible})
		}
		g.crash(3, false)
		expect.AtMostf(t, g.untilHolder(10*lease), 3*lease, "ticks without a coordinator")
		g.wantHolder(5)
		g.start(3, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
		g.advance(10 * lease)
		g.input(5, election.Input{Kind: election.StepDown})
		g.advance(day / 2)
		g.wantHolder(3)
		g.advance(day / 2)
		g.wantHolder(5)
	})
}

func TestStepDownNeedsReadySuccessor(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 3, newRoster(t, 1, 1, 2, 3), nil)
		g.input(1, election.Input{Kind: election.BecomeIneligible})
		g.input(2, election.Input{Kind: election.BecomeIneligible})
		g.advance(heartbeat)
		for _, peer := range []election.ID{election.None, 1, 2, 9} {
			g.input(3, election.Input{Kind: election.StepDown, Peer: peer})
		}
		if g.countEvents(3, election.StopRequested) != 0 || g.countEvents(3, election.Refused) != 4 {
			t.Errorf("got %d requests to stop and %d refusals, want none and 4", g.countEvents(3, election.StopRequested),
				g.countEvents(3, election.Refused))
		}
		g.input(2, election.Input{Kind: election.StepDown}) // 2 isn't the coordinator
		g.wantHolder(3)
	})
}

func TestPolicyDeterminesWhenHigherProcessTakesOver(t *testing.T) {
	for _, test := range []struct {
		policy office.Policy
		before election.Tick // no take-over until then
		after  election.Tick // a take-over by then; Never if there is none
	}{
		{office.Always, 0, 2 * heartbeat},
		{office.WhenStable, stablePeriod - heartbeat, stablePeriod + 2*heartbeat},
		{office.NeverPreempt, 10 * stablePeriod, election.Never},
	} {
		inGrantModes(t, func(t *testing.T, mode office.Mode) {
			g := newGroup(t, mode, 2, newRoster(t, 1, 1, 2, 3), func(c *office.Config) { c.Policy = test.policy })
			if test.before > 0 {
				g.advance(test.before)
				g.wantHolder(2)
			}
			if test.after != election.Never {
				g.advance(test.after - test.before)
				g.wantHolder(3)
			}
		})
	}
}

// Process 5 was ready during an earlier tenure of 3, and may have lost its links since.
// Only its answer to the present claim counts.
func TestReadinessOfEarlierTenureDoesntCount(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newFollower(t, mode, alwaysPreempt)
		h.receive(5, election.Grant, term(9), election.Hold{Ready: true})
		receiveResigned(h, 4, term(10), self, election.Hold{})
		h.receive(1, election.Grant, term(11), election.Hold{Sent: h.now})
		h.receive(4, election.Grant, term(11), election.Hold{Sent: h.now})
		h.wantHolder(self)
		expect.Equalf(t, h.countEvents(self, election.StopRequested), 0, "requests to stop (5 hasn't answered)")
		h.receive(5, election.Grant, term(11), election.Hold{Sent: h.now, Ready: true})
		expect.Equalf(t, h.countEvents(self, election.StopRequested), 1, "requests to stop (5 is ready)")
	})
}

// Several higher processes become ready in a row: the coordinator hands over to the highest one, once.
func TestHandOverSkipsToHighestProcess(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, test := range []struct {
			name                         string
			policy                       office.Policy
			readyFrom, until, longTenure election.Tick // 5 is ready from then on; the request comes then
			want                         election.ID
		}{
			{"5 is ready a tick after 4", office.Always, 1, 1, 0, 5},
			{"5 isn't ready", office.Always, election.Never, heartbeat, 0, 4},
			{"5 is stable soon after 4", office.WhenStable, stablePeriod / 2, stablePeriod * 3 / 2, 0, 5},
			{"5 is stable long after 4", office.WhenStable, stablePeriod / 2, stablePeriod, stablePeriod / 2, 4},
		} {
			h := newFollower(t, mode, func(c *office.Config) { c.Policy, c.LongTenure = test.policy, test.longTenure })
			h.appsKeepRunning = true
			receiveResigned(h, 4, term(10), self, election.Hold{})
			for began := h.now; h.now <= began+test.until; h.advance(1) {
				h.receive(1, election.Grant, term(11), election.Hold{Sent: h.now})
				h.receive(2, election.Grant, term(11), election.Hold{Sent: h.now})
				if n := h.countEvents(self, election.StopRequested); n != 0 {
					t.Fatalf("%s: got a request to stop after %d ticks, want none before %d", test.name, h.now-began, test.until)
				}
				h.receive(5, election.Grant, term(11), election.Hold{Sent: h.now, Ready: h.now-began >= test.readyFrom})
				h.receive(4, election.Grant, term(11), election.Hold{Sent: h.now, Ready: true})
			}
			if got := h.events[len(h.events)-1].event; got.Kind != election.StopRequested || got.Peer != test.want {
				t.Errorf("%s: got event %v for %d, want a request to stop for %d", test.name, got.Kind, got.Peer, test.want)
			}
		}
	})
}

// Process 3 is ready, but its claims are lost. Its predecessor 2 is elected again, and must not resign in its
// favor over and over.
func TestHandOverThatFailedIsntRepeatedSoon(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		const claimTimeout = lease + suspicionTimeout
		g := newGroup(t, mode, 2, newRoster(t, 1, 1, 2, 3), alwaysPreempt)
		g.drop = func(m *election.Message) bool { return m.From == 3 && m.Kind == election.Beat }
		for g.countEvents(2, election.OfficeResigned) == 0 && g.now < lease {
			g.advance(1)
		}
		g.advance(4*claimTimeout - 1)
		g.wantHolder(2)
		expect.Equalf(t, g.countEvents(2, election.OfficeResigned), 1, "resignations (within 4 claim timeouts)")
		g.drop = nil
		g.advance(heartbeat)
		g.wantHolder(3)
	})
}
