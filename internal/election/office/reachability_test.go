package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// dropExceptTo cuts a process off from all others but one.
func dropExceptTo(id, one election.ID) func(*election.Message) bool {
	return func(m *election.Message) bool { return crosses(m, id) && m.From != one && m.To != one }
}

// The highest process reaches only the coordinator. It would win any election, but never acquire the office.
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

// The same if there is no coordinator: the others must not wait for that process forever.
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

// silences are faults with at most one lapse, although processes fall silent more than once, or end.
var silences = map[string]func(*delayed){
	"the others hear 5 once more before it lapses": func(d *delayed) {
		d.run(d.now + 91)
		d.paused[5] = true
		d.in(370, func() { d.paused[5] = false })
		d.run(d.now + 5000)
		d.step(5, election.Input{Kind: election.StepDown})
	},
	"a link stalls twice": func(d *delayed) {
		for range 2 {
			d.drop = func(m *election.Message) bool { return m.From == 5 && m.To == 4 }
			d.run(d.now + 600)
			d.drop = nil
			d.run(d.now + 5000)
		}
		d.step(5, election.Input{Kind: election.StepDown})
	},
	"two crashes that are proven after the suspicion": func(d *delayed) {
		for _, id := range []election.ID{5, 4} {
			life := d.incarnations[id]
			d.stop(id, false)
			d.run(d.now + 420)
			for other := election.ID(1); other < id; other++ {
				d.step(other, election.Input{Kind: election.Ended, Peer: id, Life: life})
			}
			d.run(d.now + 5000)
		}
	},
}

// TestSilenceIsNoLapse: after these faults, 5 restarts, and gets the office back at once.
func TestSilenceIsNoLapse(t *testing.T) {
	for name, fault := range silences {
		t.Run(name, func(t *testing.T) {
			inGrantModes(t, func(t *testing.T, mode office.Mode) {
				d := newDelayed(t, mode, 5, 10, preempting)
				d.runUntilHolder(5)
				d.run(d.now + minute)
				fault(d)
				d.stop(5, false)
				d.run(d.now + 4000)
				d.start(5, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
				d.step(5, election.Input{Kind: election.Recover})
				expect.AtMostf(t, d.runUntilHolder(5), 2000, "ticks until 5 got the office back")
			})
		})
	}
}

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
				t.Errorf("one way takes %d ticks: got no coordinator for %d of %d ticks, and %d tenures, want at most two "+
					"leases and two tenures",
					slow, vacant, 80*lease, tenures)
			}
		}
	})
}

// between reports whether a message is on the link between two processes.
func between(a, b election.ID) func(*election.Message) bool {
	return func(m *election.Message) bool { return m.From == a && m.To == b || m.From == b && m.To == a }
}

// A link stalls between the coordinator and the process that would succeed it. The third one hears both.
func TestStalledLinkMakesNoSecondCoordinator(t *testing.T) {
	g := newGroup(t, office.Available, 3, newRoster(t, 1, 1, 2, 3), nil)
	g.drop = between(2, 3)
	g.advance(3 * suspicionTimeout / 2)
	g.wantHolder(3)
	must.Equalf(t, g.machines[2].Status().Coordinator, election.None, "coordinator that 2 knows after it has lost 3")
	g.drop = nil
	g.advance(2 * heartbeat)
	g.wantHolder(3)
	g.wantFollowed(3, 1, 2)
	expect.Equalf(t, g.countEvents(2, election.TenureStarted), 0, "tenures of 2 while its link stalled")
}

// The same link is broken for good, so that 2 needs a coordinator that it reaches.
func TestBrokenLinkMakesSecondCoordinator(t *testing.T) {
	g := newGroup(t, office.Available, 3, newRoster(t, 1, 1, 2, 3), nil)
	g.drop = between(2, 3)
	g.advance(4 * suspicionTimeout)
	if got := g.holders(); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("got holders %v, want 2 and 3", got)
	}
}

// The coordinator is frozen. The others fall silent for nobody, so they say at once that they have lost it, too.
func TestFrozenCoordinatorIsReplacedWithoutDelay(t *testing.T) {
	for _, size := range []election.ID{2, 3, 5} {
		g := newGroup(t, office.Available, size, newRoster(t, 1, []election.ID{1, 2, 3, 4, 5}[:size]...), nil)
		g.crash(size, false)
		g.advance(suspicionTimeout + 2)
		g.wantHolder(size - 1)
	}
}

// The coordinator and a third process are frozen, which can't say whether they hear the coordinator.
func TestSilentWitnessDelaysByAHeartbeat(t *testing.T) {
	g := newGroup(t, office.Available, 4, newRoster(t, 1, 1, 2, 3, 4), nil)
	g.crash(4, false)
	g.crash(2, false)
	g.advance(suspicionTimeout + 2)
	if got := g.holders(); len(got) > 0 {
		t.Fatalf("got holders %v, want none yet", got)
	}
	g.advance(heartbeat)
	g.wantHolder(3)
}

// The link comes back, and the coordinator's answer to a probe arrives before its next BEAT. The coordinator ranks
// below 3.
func TestAnswerOfCoordinatorIsNoReasonToReplaceIt(t *testing.T) {
	for outage := suspicionTimeout + 1; outage < 2*suspicionTimeout; outage++ {
		g := newGroup(t, office.Available, 2, newRoster(t, 1, 1, 2, 3), nil)
		g.advance(2 * heartbeat)
		g.drop = between(2, 3)
		g.advance(outage)
		g.drop = nil
		g.advance(2 * suspicionTimeout)
		if n := g.countEvents(3, election.TenureStarted); n > 0 {
			t.Errorf("after %d ticks without the link: got %d tenures of 3, want none", outage, n)
			g.wantHolder(2)
		}
	}
}
