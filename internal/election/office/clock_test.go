package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// epochDuration is how long an epoch of the wall clock lasts: longer than a lease.
const epochDuration = 2 * lease

// setWallClocks gives the processes wall clocks that read 1 at the start, plus the epochs in ahead.
func setWallClocks(g *group, ahead map[election.ID]election.Epoch) {
	g.configure = func(c *office.Config) {
		reading := 1 + ahead[c.Self] + election.Epoch(g.now/epochDuration)
		c.Clock = election.TermClock{AtBoot: reading, Boot: g.now, TicksPerEpoch: epochDuration}
	}
}

// All processes restart, and the clock of the highest one is ahead of the others. If it went on to a newer term before
// their clocks reached the last one, they would never catch up.
func TestMembersWithSlowClocksGrantEventually(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, ahead := range []election.Epoch{0, 1, 3, 10} {
			g := &group{t: t, mode: mode}
			setWallClocks(g, map[election.ID]election.Epoch{3: ahead})
			roster := newRoster(t, 1, 1, 2, 3)
			for _, id := range []election.ID{3, 2, 1} {
				g.start(id, roster, nil)
				g.advance(epochDuration / 3) // so that their terms begin at different moments
			}
			g.advance(election.Tick(ahead+2)*epochDuration + lease)
			g.wantHolder(3)
			g.wantFollowed(3, 1, 2, 3)
		}
	})
}

// The coordinator and its follower lose each other, and reconnect before their equal clocks reach the next epoch.
func TestProcessesWithEqualClocksDontCampaignAtOnce(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode}
		setWallClocks(g, nil)
		roster := newRoster(t, 1, 1, 2)
		for _, id := range []election.ID{1, 2} {
			g.start(id, roster,
				func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, election.Epoch(1).Last(), 2 })
		}
		g.advance(heartbeat)
		g.wantHolder(2)
		g.drop = func(m *election.Message) bool { return crosses(m, 2) }
		g.advance(suspicionTimeout + 2*heartbeat)
		g.wantFollowed(election.None, 1)
		g.drop = nil
		g.advance(epochDuration - g.now + stagger + 2)
		g.wantHolder(2)
		g.wantFollowed(2, 1)
	})
}

// The other member has restarted, and reports the floor of its list as its bound: a term of the far
// future. Then it adopts the newest list, and a term that can be used at once would do.
func TestLowerBoundEndsWaitForClock(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode, capture: func(*election.Message) bool { return true }}
		setWallClocks(g, nil)
		g.now = 2 * epochDuration
		g.start(self, newRoster(t, 1, 2, self), func(c *office.Config) { c.MemoryLost, c.Term, c.Coordinator = false, 1, 2 })
		h := &harness{g}
		g.advance(1)
		report := func(bound election.Term) {
			h.captured = nil
			h.input(self, election.Input{Kind: election.Receive, Message: election.Message{
				Kind: election.Probe, From: 2, To: self, Hold: election.Hold{
					Life: 1, Held: true, Sent: g.now, RequesterLife: 1, Version: 1, Roster: 1, HighestGranted: bound,
				},
			}})
		}
		report(election.Epoch(100).First())
		receiveResigned(h, 2, 1, election.None, election.Hold{})
		for range 10 {
			report(election.Epoch(100).First())
			g.advance(heartbeat)
		}
		must.Equalf(t, g.countEvents(self, election.Started), 0, "elections while no term can be used")
		for range 3 {
			report(1)
			g.advance(heartbeat)
		}
		if g.countEvents(self, election.Started) == 0 {
			t.Error("got no election after a lower term was sufficient, want one within three heartbeats")
		}
	})
}

func TestHighestProcessCampaignsFirstInNewTerm(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode}
		setWallClocks(g, nil)
		roster := newRoster(t, 1, 1, 2, 3)
		for _, id := range []election.ID{1, 2, 3} {
			g.start(id, roster, nil)
		}
		g.advance(epochDuration + stagger)
		g.wantHolder(3)
		for _, id := range []election.ID{1, 2} {
			if n := g.countEvents(id, election.Started); n != 0 {
				t.Errorf("process %d started %d elections, want none", id, n)
			}
		}
	})
}

// The highest process has won and waits for its grants. The others must wait for it.
func TestLowerProcessesDontCampaignDuringClaim(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := newGroup(t, mode, 4, newRoster(t, 1, 1, 2, 3, 4), nil)
		g.advance(heartbeat)
		g.crash(4, false) // its grants have to expire
		g.advance(3 * lease)
		g.wantHolder(3)
		for _, id := range []election.ID{1, 2} {
			if n := g.countEvents(id, election.Started); n != 0 {
				t.Errorf("process %d started %d elections, want none", id, n)
			}
		}
		expect.Equalf(t, g.machines[3].Status().Term, 2, "tenure in term")
	})
}

// The clock of process 4 passes two epochs between two BEATs. The process grants a term of the second one to a process
// that then ends, and can't grant itself one of the first any more.
func TestClaimThatProcessCannotGrantItselfIsAbandoned(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode}
		g.configure = func(c *office.Config) {
			c.MemoryLost, c.Term, c.Coordinator = false, election.Epoch(60).Last(), 4
			c.Clock = election.TermClock{AtBoot: 60, TicksPerEpoch: 5}
			if c.Self != 4 {
				c.Clock.AtBoot = 100
			}
		}
		roster := newRoster(t, 1, 1, 2, 3, 4)
		for _, id := range []election.ID{1, 3, 4} {
			g.start(id, roster, nil)
		}
		g.advance(1)
		g.deliver(election.Message{
			Kind: election.Beat, From: 2, To: 4, Term: election.Epoch(62).First(), Subject: 2,
			Hold: election.Hold{Life: 1, Version: 1},
		})
		g.advance(8 * lease)
		g.wantHolder(4)
	})
}

// The highest process's clock is a day behind. The others granted the terms
// that it claims long ago, and it refuses their terms.
func TestClaimOfOldTermDoesntDelayCampaigns(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode}
		const ahead = 10000
		setWallClocks(g, map[election.ID]election.Epoch{1: ahead, 2: ahead, 3: ahead})
		roster := newRoster(t, 1, 1, 2, 3, 4)
		for _, id := range []election.ID{1, 2, 3, 4} {
			g.start(id, roster, nil)
		}
		g.advance(4*epochDuration + 4*suspicionTimeout)
		g.wantHolder(3)
		g.wantFollowed(3, 1, 2, 3)
	})
}

// The clock of a process was a day behind when it started. It can't use the next term before the clock is corrected.
func TestCorrectedClockAllowsNextTerm(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		g := &group{t: t, mode: mode}
		g.start(1, newRoster(t, 1, 1), func(c *office.Config) {
			c.MemoryLost, c.Term, c.Clock = false, election.Epoch(5000).First(),
				election.TermClock{AtBoot: 100, TicksPerEpoch: epochDuration}
		})
		g.advance(4 * lease)
		g.wantHolder(election.None)
		g.input(1, election.Input{Kind: election.CorrectClock, Term: election.Epoch(6000).First()})
		g.advance(4 * lease)
		g.wantHolder(1)
		g.input(1, election.Input{Kind: election.CorrectClock, Term: election.Epoch(50).First()}) // back: the tenure goes on
		g.advance(4 * lease)
		g.wantHolder(1)
		expect.Equalf(t, g.machines[1].Status().Term, election.Epoch(5000).First()+1, "tenure in term")
	})
}

// second is a second of the default settings, in ticks of a millisecond.
const second election.Tick = 1000

// newSkewedGroup returns a group with the default settings, in which a term takes a tenth of a second. The parameter
// ahead is by how many seconds the clocks of processes are ahead.
func newSkewedGroup(t *testing.T, mode office.Mode, ahead map[election.ID]election.Epoch) *group {
	g := &group{t: t, mode: mode}
	g.configure = func(c *office.Config) {
		reading := 10_000_000 + 10*ahead[c.Self] + election.Epoch(g.now/(second/10))
		c.Clock = election.TermClock{AtBoot: reading, Boot: g.now, TicksPerEpoch: second / 10}
		c.Lease, c.Heartbeat, c.SuspicionTimeout, c.Stagger = second/2, second/10, 2*second/5, second/20
	}
	return g
}

// untilHolder advances the time until a process holds the office, and returns the time that took.
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

// The lowest of three members, whose clock is ahead, has restarted. Then the coordinator crashes. The two that remain
// must not wait until the clock of one has reached that of the other.
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
				t.Errorf("with a clock that is %d s ahead: got the next holder after %d ms, want less than two seconds",
					ahead, took)
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
					t.Errorf("with a clock that is %d s ahead: got the first holder of %d after %d ms, want less than three seconds",
						ahead, size, took)
				}
			}
		}
	})
}

// One message of a member with a term that nobody can grant must not keep the group without a coordinator.
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
			t.Logf("%s in a term that is 29.9 s ahead: no coordinator for %d ms, then the next one %d ms after a crash",
				name, vacant, took)
			if vacant > 2*second || took > 2*second {
				t.Errorf("%s in a term that is 29.9 s ahead: got no holder for %d ms and %d ms, want less than two seconds",
					name, vacant, took)
			}
		}
	})
}
