package office_test

import (
	"math"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
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

// TestOverloadedGroupKeepsCoordinator: renewals are late for two minutes, more and more. A lease that stays as it is lapses
// again and again.
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
		if n > 1 {
			t.Errorf("got %d lapses in two minutes, want at most one", n)
		}
		d.run(d.now + 90_000)
		if holders := d.holders(); len(holders) != 1 || d.machines[holders[0]].Status().Until > d.now+500 {
			t.Errorf("a minute and a half later: got holders %v, want one with the usual lease again", holders)
		}
	})
}
