package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// second is a second of the default settings, in ticks of a millisecond.
const second election.Tick = 1000

// newSkewedGroup returns a group with the default settings, in which a term takes a
// tenth of a second. The parameter ahead is by how many seconds the clocks of
// processes are ahead.
func newSkewedGroup(t *testing.T, mode office.Mode, ahead map[election.ID]election.Epoch) *group {
	g := &group{t: t, mode: mode}
	g.configure = func(c *office.Config) {
		reading := 10_000_000 + 10*ahead[c.Self] + election.Epoch(g.now/(second/10))
		c.Clock = election.TermClock{AtBoot: reading, Boot: g.now, TicksPerEpoch: second / 10}
		c.Lease, c.Heartbeat, c.SuspicionTimeout, c.Stagger = second/2, second/10, 2*second/5, second/20
	}
	return g
}

// untilHolder advances the time until a process holds the office, and returns the
// time that took.
func (g *group) untilHolder(limit election.Tick) election.Tick {
	g.t.Helper()
	from := g.now
	for len(g.holders()) == 0 {
		if g.now >= from+limit {
			g.t.Fatalf("at %d got no holder for %d ticks, want one", g.now, limit)
		}
		g.advance(1)
	}
	return g.now - from
}

// The lowest of three members, whose clock is ahead, has restarted. Then the
// coordinator crashes. The two that remain must not wait until the clock of one has
// reached that of the other.
func TestFailoverDoesntWaitForSkew(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		roster := newRoster(t, 1, 1, 2, 3)
		for _, ahead := range []election.Epoch{0, 5, 30} {
			g := newSkewedGroup(t, mode, map[election.ID]election.Epoch{1: ahead})
			for _, m := range roster.Ring() {
				g.start(m.ID, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 1, 3 })
			}
			g.advance(second)
			g.crash(1, true)
			g.advance(second)
			g.start(1, roster, nil)
			g.advance(3 * second / 2)
			g.wantHolder(3)
			g.crash(3, true)
			took := g.untilHolder(60 * second)
			t.Logf("clock of the restarted member %d s ahead: next coordinator after %d ms", ahead, took)
			if took > 2*second {
				t.Errorf("with a clock that is %d s ahead: got the next holder after %d ms, want less than two seconds", ahead, took)
			}
		}
	})
}

// All members start without memory, and the clock of the highest is ahead.
func TestColdStartDoesntWaitForSkew(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, size := range []int{3, 4, 5} {
			for _, ahead := range []election.Epoch{0, 5, 30} {
				ids := []election.ID{1, 2, 3, 4, 5}[:size]
				roster := newRoster(t, 1, ids...)
				g := newSkewedGroup(t, mode, map[election.ID]election.Epoch{ids[size-1]: ahead})
				for _, id := range ids {
					g.start(id, roster, nil)
				}
				took := g.untilHolder(60 * second)
				t.Logf("clock of the highest of %d %d s ahead: first coordinator after %d ms", size, ahead, took)
				if took > 3*second {
					t.Errorf("with a clock that is %d s ahead: got the first holder of %d after %d ms, want less than three seconds", ahead, size, took)
				}
			}
		}
	})
}

// One message of a member with a term that nobody can grant must not keep the group
// without a coordinator.
func TestOneMessageDoesntStopGroup(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for name, held := range map[string]bool{"a claim": false, "a renewal": true} {
			g := newSkewedGroup(t, mode, nil)
			roster := newRoster(t, 1, 1, 2, 3)
			for _, m := range roster.Ring() {
				g.start(m.ID, roster, func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 1, 3 })
			}
			g.advance(second)
			term := (election.Epoch(10_000_000+g.now/(second/10)) + 299).Last()
			g.deliver(election.Message{
				Kind: election.Beat, From: 1, To: 3, Term: term, Subject: 1, Hold: election.Hold{Held: held, Life: 1, Version: 1},
			})
			g.deliverAll()
			vacant := g.untilHolder(60 * second)
			g.crash(g.holders()[0], true)
			took := g.untilHolder(60 * second)
			t.Logf("%s in a term that is 29.9 s ahead: no coordinator for %d ms, then the next one %d ms after a crash", name, vacant, took)
			if vacant > 2*second || took > 2*second {
				t.Errorf("%s in a term that is 29.9 s ahead: got no holder for %d ms and %d ms, want less than two seconds", name, vacant, took)
			}
		}
	})
}
