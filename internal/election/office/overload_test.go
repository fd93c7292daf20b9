package office_test

import (
	"math"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// overload makes all processes wait for a processor again and again until the moment end. Most waits are short, some
// are long: between scale and longest, with the density of a power law.
func (d *delayed) overload(end, scale, longest election.Tick) {
	for id := election.ID(1); int(id) < len(d.machines); id++ {
		var wait, run func()
		wait = func() {
			d.paused[id] = true
			share := math.Pow(1-d.random.Float64(), -1/1.2)
			d.in(min(election.Tick(float64(scale)*share), longest), run)
		}
		run = func() {
			d.paused[id] = false
			if d.now < end {
				d.in(election.Tick(20+d.random.Int64N(80)), wait)
			}
		}
		wait()
	}
}

// lapses counts the tenures that have lapsed.
func (d *delayed) lapses() (n int) {
	for id := range d.machines {
		n += d.countEvents(election.ID(id), election.TenureLost)
	}
	return n
}

// stretches is a lease of 500 ms that grows up to 2 s.
func stretches(c *office.Config) {
	milliseconds(2000, 100)(c)
	c.UsualLease, c.CalmPeriod = 500, 5000
}

// TestOverloadedGroupKeepsCoordinator: renewals are late for two minutes, more and more. A lease that stays as it is
// lapses again and again.
func TestOverloadedGroupKeepsCoordinator(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		lapses := func(tune func(*office.Config)) (n int, d *delayed) {
			d = newDelayed(t, mode, 5, 1, tune)
			d.run(minute)
			d.overload(minute+10_000, 10, 300)
			d.run(minute + 10_000)
			d.overload(3*minute, 20, 900)
			d.run(3 * minute)
			return d.lapses(), d
		}
		if n, _ := lapses(milliseconds(500, 100)); n < 5 {
			t.Errorf("with a lease that doesn't grow: got %d lapses, want an overload that causes several", n)
		}
		n, d := lapses(stretches)
		expect.AtMostf(t, n, 1, "lapses in two minutes")
		d.run(d.now + 90_000)
		if holders := d.holders(); len(holders) != 1 || d.machines[holders[0]].Status().Until > d.now+500 {
			t.Errorf("a minute and a half later: got holders %v, want one with the usual lease again", holders)
		}
	})
}

// grows is a lease that grows up to 4 times.
func grows(c *office.Config) { c.UsualLease, c.Lease, c.CalmPeriod = lease, 4*lease, calmPeriod }

// TestLateRenewalMakesLeaseLonger at once, up to the longest one, but not the interval of heartbeats. It is announced
// to followers.
func TestLateRenewalMakesLeaseLonger(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		h := newHolder(t, mode, grows)
		first := h.renew()
		if first.Lease != lease || first.Heartbeat != heartbeat {
			t.Errorf("at the start got a lease of %d and an interval of %d, want the usual ones", first.Lease, first.Heartbeat)
		}
		h.grant(0, lease)
		before := h.now
		for missed := election.Tick(1); missed <= 2; missed++ { // Nobody answers.
			if got := h.renew(); missed == 2 && (got.Lease != lease*6/5 || got.Heartbeat != heartbeat*6/5) {
				t.Errorf("without answers for two heartbeats got a lease of %d and an announced interval of %d, want three times "+
					"two heartbeats", got.Lease, got.Heartbeat)
			}
		}
		expect.Equalf(t, h.now-before, 2*heartbeat, "interval of two BEATs")
		h.grant(0, lease*6/5)
		h.now = h.machines[self].Status().Until - 1
		if got := h.renew(); got.Lease <= lease*6/5 || got.Lease > 4*lease {
			t.Errorf("just before the grants expired got a request for %d, want more than before, and at most %d",
				got.Lease, 4*lease)
		}
		h.grant(0, 0)
		calm := first
		for range 60 * calmPeriod / heartbeat {
			calm = h.renew()
			h.grant(0, calm.Lease)
		}
		if calm.Lease != lease || calm.Heartbeat != heartbeat {
			t.Errorf("after calm periods got a lease of %d and an interval of %d, want the usual ones",
				calm.Lease, calm.Heartbeat)
		}
	})
}

// TestLateCoordinatorMakesNextLeaseLonger, because what ended one tenure would end the next one. One that is dead, was
// away for longer than the longest lease, or has restarted, doesn't.
func TestLateCoordinatorMakesNextLeaseLonger(t *testing.T) {
	for name, test := range map[string]struct {
		ended    bool
		silence  election.Tick // 0 if it never returns
		restarts bool
		want     election.Tick
	}{
		"it ended":               {ended: true, want: lease},
		"it is silent":           {want: lease},
		"it was late":            {silence: 2 * lease, want: 2 * lease},
		"it was away for longer": {silence: 6 * lease, want: lease},
		"it restarted":           {silence: 2 * lease, restarts: true, want: lease},
	} {
		t.Run(name, func(t *testing.T) {
			members := newRoster(t, 1, 1, 2, 3, 4, 5)
			g := newGroup(t, office.Majority, 5, members, func(c *office.Config) {
				c.UsualLease, c.Lease, c.CalmPeriod = lease, 4*lease, 100*lease
			})
			g.advance(4 * heartbeat)
			paused := g.machines[5]
			g.crash(5, test.ended)
			requested := election.Tick(0)
			g.capture = func(m *election.Message) bool {
				if m.Kind == election.Beat && m.From == 4 {
					requested = m.Hold.Lease
				}
				return false
			}
			g.advance(max(test.silence, lease+suspicionTimeout))
			g.wantHolder(4)
			expect.Equalf(t, requested, lease, "before anything is heard: lease")
			if test.restarts {
				g.start(5, members, nil)
			} else if test.silence > 0 {
				g.machines[5] = paused
			}
			g.advance(lease)
			g.wantHolder(4)
			expect.Equalf(t, requested, test.want, "lease")
			g.advance(100 * lease)
			expect.Equalf(t, requested > lease, test.want > lease, "after a calm period: lease longer than usual")
		})
	}
}

// TestRestartBeforeSuccession: a silent coordinator that has restarted when another process succeeds it wasn't late.
// Before, no majority was connected.
func TestRestartBeforeSuccession(t *testing.T) {
	members := newRoster(t, 1, 1, 2, 3, 4, 5)
	g := newGroup(t, office.Majority, 5, members, func(c *office.Config) {
		c.UsualLease, c.Lease, c.CalmPeriod = lease, 4*lease, 100*lease
	})
	g.advance(4 * heartbeat)
	g.crash(1, true)
	g.crash(2, true)
	g.crash(5, false)
	g.advance(2 * lease)
	g.wantHolder(election.None)
	g.start(5, members, nil)
	g.input(5, election.Input{Kind: election.BecomeIneligible})
	g.advance(heartbeat)
	g.start(1, members, func(c *office.Config) { c.MemoryLost = false })
	requested := election.Tick(0)
	g.capture = func(m *election.Message) bool {
		if m.Kind == election.Beat && m.From == 4 {
			requested = m.Hold.Lease
		}
		return false
	}
	g.advance(8 * lease)
	g.wantHolder(4)
	expect.Equalf(t, requested, lease, "lease")
}

// TestMemberWithShorterLeaseDoesntMultiplyHeartbeats: it grants for the usual lease at most, because it is older.
func TestMemberWithShorterLeaseDoesntMultiplyHeartbeats(t *testing.T) {
	h := newHolder(t, office.Majority, grows)
	h.grant(0, lease)
	h.renew()
	h.renew()
	if got := h.renew(); got.Lease <= lease {
		t.Fatalf("got a request for %d, want more than %d", got.Lease, lease)
	}
	h.grant(0, lease)
	h.renew()
	h.grant(0, lease)
	before := h.now
	h.renew()
	expect.Equalf(t, h.now-before, heartbeat, "interval of BEATs")
}

// TestSlowNetworkGetsLongerLease: messages take so long that grants for the usual lease couldn't be renewed. The
// coordinator requests longer ones, and keeps the office.
func TestSlowNetworkGetsLongerLease(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, oneWay := range []election.Tick{60, 190} {
			d := newDelayed(t, mode, 5, oneWay, stretches)
			d.run(minute / 2)
			if n := len(d.starts); n == 0 || n > 3 {
				t.Errorf("one way in %d ms: got %d tenures in half a minute, want 1 to 3", oneWay, n)
			}
			before := len(d.starts)
			d.run(5 * minute)
			if n := len(d.starts) - before; n > 0 || len(d.holders()) != 1 {
				t.Errorf("one way in %d ms: got %d further tenures and holders %v, want the same one", oneWay, n, d.holders())
			}
		}
	})
}

// fast is a lease of 100 ms that grows up to 2 s.
func fast(c *office.Config) {
	milliseconds(2000, 20)(c)
	c.UsualLease, c.CalmPeriod = 100, 5000
}

// TestShortTimingUnderLoad: a lease that is twenty times as long as usual keeps the coordinator. The highest process,
// which has restarted, also seems alive for the stable period and leads again, although its answers are late.
func TestShortTimingUnderLoad(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newDelayed(t, mode, 5, 1, func(c *office.Config) { fast(c); c.Policy = office.WhenStable })
		d.run(20_000)
		d.overload(6*minute, 10, 300)
		d.run(2 * minute)
		expect.AtMostf(t, d.lapses(), 3, "lapses in 100 seconds")
		life := d.incarnations[5]
		d.machines[5] = nil
		for id, m := range d.machines {
			if m != nil {
				d.step(election.ID(id), election.Input{Kind: election.Ended, Peer: 5, Life: life})
			}
		}
		d.run(d.now + 2000)
		d.start(5, newRoster(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) { c.MemoryLost = false })
		back := d.now
		for !slices.Equal(d.holders(), []election.ID{5}) && d.now < back+minute {
			d.run(d.now + 100)
		}
		if d.now >= back+minute {
			t.Error("the highest process didn't lead again within a minute")
		}
	})
}

// TestSuspicionTimeoutIsAtMostTheLongestLease: after that, nobody holds the office any more.
func TestSuspicionTimeoutIsAtMostTheLongestLease(t *testing.T) {
	h := newFollower(t, office.Majority, func(c *office.Config) {
		grows(c)
		c.SuspicionTimeout = 2 * lease
	})
	h.receive(4, election.Beat, term(10), election.Hold{Held: true, Heartbeat: 4 * heartbeat})
	expect.Equalf(t, h.machines[self].SuspicionTimeoutInForce(), 4*lease, "suspicion timeout")
}
