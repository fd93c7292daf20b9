package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// pausesOf makes processes stand still again and again, one after the other.
func pausesOf(period election.Tick, ids ...election.ID) func(*delayed) {
	return func(d *delayed) {
		for i, id := range ids {
			d.in(election.Tick(i)*period/election.Tick(len(ids)), func() { d.pauseEvery(period, 700, id) })
		}
	}
}

// failuresOf makes the applications of processes fail in each tenure.
func failuresOf(ids ...election.ID) func(*delayed) {
	return func(d *delayed) {
		for _, id := range ids {
			d.failAfterStart(200, 2000, id)
		}
	}
}

// crashesOf makes a process crash every three seconds. It starts again soon.
func crashesOf(id election.ID) func(*delayed) {
	return func(d *delayed) {
		d.in(3000, func() {
			d.crash(id, true)
			d.in(200, func() { d.start(id, newRoster(d.t, 1, 1, 2, 3, 4, 5), nil) })
			crashesOf(id)(d)
		})
	}
}

// preempting sets the default lease and heartbeat. A process that is ready takes over at once.
func preempting(c *office.Config) {
	milliseconds(500, 100)(c)
	c.Policy = office.Always
}

// TestShortTenuresBecomeRare: processes of high rank stand still, or their applications fail, again and again.
func TestShortTenuresBecomeRare(t *testing.T) {
	for _, test := range []struct {
		name   string
		begin  func(*delayed)
		sound  election.ID // the highest of the others
		policy office.Policy
	}{
		{"5 pauses, always", pausesOf(8000, 5), 4, office.Always},
		{"5 pauses, when stable", pausesOf(8000, 5), 4, office.WhenStable},
		{"5 pauses rarely, always", pausesOf(15_000, 5), 4, office.Always},
		{"5 pauses rarely, when stable", pausesOf(15_000, 5), 4, office.WhenStable},
		{"5 and 4 pause, always", pausesOf(8000, 5, 4), 3, office.Always},
		{"5 and 4 pause, when stable", pausesOf(8000, 5, 4), 3, office.WhenStable},
		{"5 and 4 pause, never", pausesOf(8000, 5, 4), 3, office.NeverPreempt},
		{"5 fails, always", failuresOf(5), 4, office.Always},
		{"5 fails, when stable", failuresOf(5), 4, office.WhenStable},
		{"5 and 4 fail, always", failuresOf(5, 4), 3, office.Always},
		{"5 and 4 fail, when stable", failuresOf(5, 4), 3, office.WhenStable},
		{"5, 4 and 3 fail, always", failuresOf(5, 4, 3), 2, office.Always},
		{"5 and 4 fail, never", failuresOf(5, 4), 3, office.NeverPreempt},
		{"5 crashes, always", crashesOf(5), 4, office.Always},
		{"5 crashes, when stable", crashesOf(5), 4, office.WhenStable},
	} {
		t.Run(test.name, func(t *testing.T) {
			inGrantModes(t, func(t *testing.T, mode office.Mode) {
				d := newDelayed(t, mode, 5, 1, func(c *office.Config) {
					milliseconds(500, 100)(c)
					c.Policy = test.policy
				})
				test.begin(d)
				var vacant, since election.Tick
				for d.now < 6*minute {
					d.run(d.now + 50)
					if len(d.holders()) > 0 {
						since = d.now
					}
					if d.now > minute {
						vacant = max(vacant, d.now-since)
					}
				}
				expect.AtMostf(t, d.mostStarts(minute), 3, "tenures within a minute")
				expect.AtMostf(t, len(d.starts), 20, "tenures in six minutes")
				expect.AtMostf(t, vacant, 1500, "milliseconds without a coordinator")
				expect.Equalf(t, d.machines[test.sound].Penalty().ShortTenures, 0,
					"process %d: short tenures", test.sound)
			})
		})
	}
}

// TestKillsInARow: the coordinator is killed again and again, so most processes flap. All agree who comes last, so that
// no two claim the office.
func TestKillsInARow(t *testing.T) {
	d := newDelayed(t, office.Majority, 5, 1, func(c *office.Config) {
		milliseconds(500, 100)(c)
		c.Policy = office.WhenStable
	})
	for range 60 {
		d.run(d.now + 750)
		holders := d.holders()
		must.Equalf(t, len(holders), 1, "coordinators at %d", d.now)
		granted := d.machines[holders[0]].Memory()
		d.stop(holders[0], true)
		began := d.now
		for len(d.holders()) == 0 {
			d.run(d.now + 1)
		}
		expect.AtMostf(t, d.now-began, 10, "at %d: ticks without a coordinator", d.now)
		d.start(holders[0], newRoster(t, 1, 1, 2, 3, 4, 5), func(c *office.Config) { c.Memory = &granted })
	}
}

// TestOverloadAtStartCostsNoPenalty: all processes stand still again and again while they start. Shortly after that,
// the one of the highest rank leads.
func TestOverloadAtStartCostsNoPenalty(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, policy := range []office.Policy{office.Always, office.WhenStable} {
			d := newDelayed(t, mode, 5, 1, func(c *office.Config) {
				milliseconds(500, 100)(c)
				c.Policy = policy
			})
			for id := election.ID(1); id <= 5; id++ {
				for at := election.Tick(1000); at < minute/2-3000; at += 4000 {
					d.in(at+600*election.Tick(id), func() { d.paused[id] = true })
					d.in(at+600*election.Tick(id)+900, func() { d.paused[id] = false })
				}
			}
			d.run(minute / 2)
			if n := len(d.starts); n < 4 {
				t.Fatalf("policy %d: got %d tenures, want several short ones", policy, n)
			}
			expect.AtMostf(t, d.runUntilHolder(5), 10_000,
				"policy %d: ticks until coordinator 5, within two stable periods", policy)
		}
	})
}

// TestHandOversPauseAfterTwoLapses: 5 stands still after a long tenure, and again soon after it got the office back. It
// doesn't flap with a single short tenure. The first tenure may be one that the processes know when they start.
func TestHandOversPauseAfterTwoLapses(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, first := range []election.ID{election.None, 5} {
			d := newDelayed(t, mode, 5, 1, func(c *office.Config) {
				preempting(c)
				c.Term, c.Coordinator = election.Term(first), first
			})
			d.runUntilHolder(5)
			d.run(d.now + minute)
			for _, want := range []struct{ least, most election.Tick }{
				{0, 1000}, {minute - 1000, minute + 1000}, {minute - 1000, minute + 1000},
			} {
				d.run(d.now + 5000)
				d.paused[5] = true
				d.in(1000, func() { d.paused[5] = false })
				d.run(d.now + 900)
				d.wantHolder(4)
				expect.Equalf(t, d.machines[4].Pause() > 0, want.least > 0, "after %d tenures: pause", len(d.starts))
				expect.Equalf(t, d.machines[3].Pause(), 0, "pause of a follower")
				if took := d.runUntilHolder(5); took < want.least || took > want.most {
					t.Errorf("5 got the office back after %d, want %d to %d", took, want.least, want.most)
				}
			}
		}
	})
}

// TestHeldBackUntilLastTenureIsLong: the process doesn't know since when another one leads if it has just started and
// hasn't seen the claim. Then it waits no longer than its own penalty.
func TestHeldBackUntilLastTenureIsLong(t *testing.T) {
	for _, c := range []struct{ followed, claim, waits bool }{
		{false, false, false}, {false, true, true}, {true, false, true}, {true, true, true},
	} {
		h := newHarness(t, office.Majority, nil)
		h.start(self, newRoster(t, 1, 1, 2, 3, 4, 5), func(o *office.Config) {
			o.MemoryLost, o.Tenures.Short = false, 2
			if c.followed {
				o.Term, o.Coordinator = term(10), 4
			}
		})
		h.advance(2 * lease)
		if c.claim {
			h.receive(5, election.Beat, term(12), election.Hold{})
		}
		h.receive(5, election.Beat, term(12), election.Hold{Held: true})
		h.wantFollowed(5, self)
		expect.Equalf(t, h.machines[self].Penalty().Until > h.now, c.waits, "%+v: waits", c)
	}
}

// newFlapping returns a group in which 4 leads, and 5 has just had two short tenures.
func newFlapping(t *testing.T, mode office.Mode, tune func(*office.Config)) *delayed {
	t.Helper()
	d := newDelayed(t, mode, 5, 1, func(c *office.Config) {
		preempting(c)
		if tune != nil {
			tune(c)
		}
	})
	for range 2 {
		d.runUntilHolder(5)
		d.step(5, election.Input{Kind: election.BecomeIneligible})
		d.runUntilHolder(4)
		d.run(d.now + 300)
		d.step(5, election.Input{Kind: election.BecomeEligible})
	}
	d.run(d.now + 2000)
	d.wantHolder(4)
	return d
}

// runUntilHolder lets time pass until a process holds the office, two minutes at most.
func (d *delayed) runUntilHolder(id election.ID) (took election.Tick) {
	d.t.Helper()
	began := d.now
	for !slices.Equal(d.holders(), []election.ID{id}) {
		if d.now > began+2*minute {
			d.t.Fatalf("at %d got holders %d for two minutes, want %d", d.now, d.holders(), id)
		}
		d.run(d.now + 1)
	}
	return d.now - began
}

// wantHeldBack checks whether a process flaps, and that all agree about that.
func (d *delayed) wantHeldBack(id election.ID, want bool) {
	d.t.Helper()
	expect.Equalf(d.t, d.machines[id].Penalty().ShortTenures > 0, want, "at %d process %d: penalty", d.now, id)
	for other, m := range d.machines {
		if m != nil {
			expect.Equalf(d.t, m.HeldBack() == 1, want, "at %d process %d: somebody flaps", d.now, other)
		}
	}
}

func TestPenaltyDoublesAndEndsAfterLongTenure(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newFlapping(t, mode, nil)
		d.wantHeldBack(5, true)
		for _, want := range []election.Tick{1, 2, 4, 8, 8} {
			took := d.runUntilHeldBackEnds(5)
			if took < want*minute-3000 || took > want*minute+1000 {
				t.Errorf("at %d process 5 was held back for %d, want %d", d.now, took, want*minute)
			}
			d.runUntilHolder(5)
			d.step(5, election.Input{Kind: election.BecomeIneligible})
			d.runUntilHolder(4)
			d.step(5, election.Input{Kind: election.BecomeEligible})
		}
		d.runUntilHeldBackEnds(5)
		d.runUntilHolder(5)
		d.run(d.now + minute)
		d.step(5, election.Input{Kind: election.BecomeIneligible})
		d.runUntilHolder(4)
		d.wantHeldBack(5, false)
		d.step(5, election.Input{Kind: election.BecomeEligible})
		if took := d.runUntilHolder(5); took > 1000 {
			t.Errorf("after a long tenure the office was handed over after %d, want at once", took)
		}
	})
}

// runUntilHeldBackEnds lets time pass until a process doesn't flap any more.
func (d *delayed) runUntilHeldBackEnds(id election.ID) (took election.Tick) {
	d.t.Helper()
	began := d.now
	d.run(d.machines[id].Penalty().Until)
	return d.now - began
}

// TestHealthySuccessorDoesNotWait: 5 flaps, and 4, which is healthy, crashes.
func TestHealthySuccessorDoesNotWait(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, noticed := range []bool{true, false} {
			var took, want election.Tick // the longest
			for moment := election.Tick(5); moment < 100; moment += 10 {
				usual := newDelayed(t, mode, 4, 1, milliseconds(500, 100))
				usual.run(5000 + moment)
				usual.wantHolder(4)
				usual.stop(4, noticed)
				want = max(want, usual.runUntilHolder(3))

				d := newFlapping(t, mode, nil)
				d.run(d.now + moment)
				d.stop(4, noticed)
				took = max(took, d.runUntilHolder(3))
			}
			expect.AtMostf(t, took, want+5, "noticed %v: ticks until a coordinator, as without 5", noticed)
		}
	})
}

// stop ends a process.
func (d *delayed) stop(id election.ID, noticed bool) {
	d.machines[id] = nil
	for other, m := range d.machines {
		if noticed && m != nil {
			d.step(election.ID(other), election.Input{Kind: election.Ended, Peer: id, Life: d.incarnations[id]})
		}
	}
}

// TestFlappingProcessLeadsIfNoOtherCan: the applications of all others are dead.
func TestFlappingProcessLeadsIfNoOtherCan(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newFlapping(t, mode, nil)
		for id := election.ID(1); id <= 3; id++ {
			d.step(id, election.Input{Kind: election.BecomeIneligible})
		}
		d.run(d.now + 300)
		d.step(4, election.Input{Kind: election.BecomeIneligible})
		if took := d.runUntilHolder(5); took > 10 {
			t.Errorf("got coordinator 5 after %d, want it at once", took)
		}
	})
}

// TestFlappingProcessLeadsIfOthersReachNoMajority: the others are eligible, but have lost all links
// except for those to 5.
func TestFlappingProcessLeadsIfOthersReachNoMajority(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newFlapping(t, mode, nil)
		d.drop = func(m *election.Message) bool { return m.From != 5 && m.To != 5 }
		expect.AtMostf(t, d.runUntilHolder(5), 4000, "ticks until coordinator 5")
	})
}

// TestOperatorsDecide: short tenures that end on request don't count, a named successor leads, and a
// new priority ends a penalty.
func TestOperatorsDecide(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newDelayed(t, mode, 5, 1, preempting)
		for range 3 {
			d.runUntilHolder(5)
			d.run(d.now + 300)
			d.step(5, election.Input{Kind: election.StepDown})
			d.runUntilHolder(4)
		}
		d.wantHeldBack(5, false)
		d.wantHeldBack(4, false)

		d = newFlapping(t, mode, nil)
		d.step(4, election.Input{Kind: election.StepDown, Peer: 5})
		if took := d.runUntilHolder(5); took > 10 {
			t.Errorf("got the named successor after %d, want it at once", took)
		}

		d = newFlapping(t, mode, nil)
		ring := slices.Clone(newRoster(t, 1, 1, 2, 3, 4, 5).Ring())
		ring[4].Priority = 9
		changed, err := election.NewRoster(2, ring)
		must.Succeed(t, err)
		changed = changed.Succeed(newRoster(t, 1, 1, 2, 3, 4, 5), 0)
		for id := election.ID(1); id <= 5; id++ {
			d.step(id, election.Input{Kind: election.Adopt, Roster: changed})
		}
		d.wantHeldBack(5, false)
		if took := d.runUntilHolder(5); took > 1000 {
			t.Errorf("got coordinator 5 after %d, want it at once", took)
		}
	})
}

// TestCrashDoesNotEndPenalty: 5 remembers its tenures, and the others what it declared.
func TestCrashDoesNotEndPenalty(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newFlapping(t, mode, nil)
		d.stop(5, true)
		d.run(d.now + 1000)
		d.start(5, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
		d.run(d.now + minute/2)
		d.wantHolder(4)
	})
}

// TestReplacedPodIsNotHeldBack: the pod of the coordinator is killed by force, so its tenure lapses. Its replacement
// has no record, however short the tenures before were, and no other member holds it back.
func TestReplacedPodIsNotHeldBack(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newFlapping(t, mode, nil)
		d.stop(5, false)
		d.run(d.now + 2000)
		d.tenures[5], d.directories[5] = office.TenureRecord{}, 0
		d.start(5, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
		expect.AtMostf(t, d.runUntilHolder(5), 5000, "ticks until the replacement leads")
	})
}

func TestUnnamedSuccessorDoesNotFlap(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newFlapping(t, mode, nil)
		d.step(4, election.Input{Kind: election.StepDown})
		if took := d.runUntilHolder(3); took > 10 {
			t.Errorf("got coordinator 3 after %d, want it at once", took)
		}
	})
}

// TestShortTenuresAreForgotten: ten minutes pass between two short tenures of 5.
func TestShortTenuresAreForgotten(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newDelayed(t, mode, 5, 1, milliseconds(500, 100))
		for range 2 {
			d.runUntilHolder(5)
			d.run(d.now + 6000) // 4 is eligible again
			d.step(5, election.Input{Kind: election.BecomeIneligible})
			d.runUntilHolder(4)
			d.step(5, election.Input{Kind: election.BecomeEligible})
			d.wantHeldBack(5, false)
			d.run(d.now + 10*minute)
			d.step(4, election.Input{Kind: election.StepDown, Peer: 5})
		}
	})
}

// TestTenureFromBeforeStartIsNotShort: 1 restarts shortly before a long tenure ends.
func TestTenureFromBeforeStartIsNotShort(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newDelayed(t, mode, 5, 1, preempting)
		d.runUntilHolder(5)
		d.run(d.now + 2*minute)
		d.stop(1, true)
		d.start(1, newRoster(t, 1, 1, 2, 3, 4, 5), nil)
		d.run(d.now + 5000)
		for range 2 {
			d.step(5, election.Input{Kind: election.BecomeIneligible})
			d.runUntilHolder(4)
			d.wantHeldBack(5, false)
			d.step(5, election.Input{Kind: election.BecomeEligible})
			d.runUntilHolder(5)
		}
	})
}

// TestSuccessorThatDoesNotSucceed: 5 stands still each time 4 hands over to it.
func TestSuccessorThatDoesNotSucceed(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		d := newDelayed(t, mode, 5, 1, preempting)
		d.step(5, election.Input{Kind: election.BecomeIneligible})
		d.runUntilHolder(4)
		d.step(5, election.Input{Kind: election.BecomeEligible})
		for d.now < minute {
			if d.run(d.now + 1); len(d.holders()) == 0 && !d.paused[5] {
				d.paused[5] = true
				d.in(1500, func() { d.paused[5] = false })
			}
		}
		d.wantHolder(4)
		expect.AtMostf(t, len(d.starts), 4, "tenures in a minute")
	})
}

// TestPausesInAvailableMode: no grants expire while the highest process stands still. The others elect, so its
// tenure is over when it continues. Otherwise its rank would end theirs, each time.
func TestPausesInAvailableMode(t *testing.T) {
	for _, policy := range []office.Policy{office.Always, office.WhenStable, office.NeverPreempt} {
		d := newDelayed(t, office.Available, 5, 1, func(c *office.Config) {
			milliseconds(500, 100)(c)
			c.Policy = policy
		})
		pausesOf(8000, 5)(d)
		d.run(6 * minute)
		expect.AtMostf(t, d.mostStarts(minute), 3, "policy %d: tenures within a minute", policy)
		if n := len(d.starts); policy == office.NeverPreempt && n != 2 {
			t.Errorf("got %d tenures without preemption, want 2", n)
		}
	}
}

func TestCrashesInAvailableMode(t *testing.T) {
	for _, policy := range []office.Policy{office.Always, office.WhenStable} {
		d := newDelayed(t, office.Available, 5, 1, func(c *office.Config) {
			milliseconds(500, 100)(c)
			c.Policy = policy
		})
		crashesOf(5)(d)
		d.run(6 * minute)
		expect.AtMostf(t, d.mostStarts(minute), 3, "policy %d: tenures within a minute", policy)
		d.wantHolder(4)
	}
}

// TestIsolatedCoordinatorStandsStill: nobody could have succeeded it.
func TestIsolatedCoordinatorStandsStill(t *testing.T) {
	d := newDelayed(t, office.Available, 2, 1, milliseconds(500, 100))
	d.runUntilHolder(2)
	d.stop(1, true)
	d.run(d.now + 2000)
	d.pauseEvery(1000, 700, 2)
	d.run(d.now + 5000)
	d.wantHolder(2)
	expect.Lenf(t, d.starts, 1, "tenures")
}
