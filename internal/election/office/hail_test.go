package office_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// lonely is process 3 of so many, who knows no coordinator and hears nobody.
func lonely(t *testing.T, members int) *desk {
	t.Helper()
	ids := make([]election.ID, members)
	for i := range ids {
		ids[i] = election.ID(i + 1)
	}
	w := &town{t: t, mode: office.Majority}
	w.keep = func(*election.Message) bool { return true }
	w.start(me, list(t, 1, ids...), nil)
	w.pass(1)
	return &desk{w}
}

// hailed is who was hailed since the last time, and how often.
func (d *desk) hailed() map[election.ID]int {
	times := map[election.ID]int{}
	for _, m := range d.kept {
		if m.Kind == election.Probe {
			times[m.To]++
		}
	}
	d.kept = nil
	return times
}

func TestEverybodyInASmallGroupIsHailedAtOnce(t *testing.T) {
	d := lonely(t, 17)
	for range 3 {
		d.pass(heartbeat)
		if hailed := d.hailed(); len(hailed) != 16 {
			t.Errorf("%d of 16 others were hailed in a heartbeat", len(hailed))
		}
	}
}

func TestALargeGroupIsHailedInTurns(t *testing.T) {
	const members, turns, most = 100, 7, 16
	d := lonely(t, members)
	for round := range 2 {
		all := map[election.ID]int{}
		for range turns {
			d.pass(heartbeat)
			hailed := d.hailed()
			if len(hailed) > most {
				t.Errorf("%d were hailed in a heartbeat, want at most %d", len(hailed), most)
			}
			for id, times := range hailed {
				all[id] += times
			}
		}
		for id := election.ID(1); id <= members; id++ {
			if id != me && all[id] != 1 {
				t.Errorf("in round %d, process %d was hailed %d times, want once", round, id, all[id])
			}
		}
	}
}

// Whoever hails in turns is given as many turns.
func TestALargeGroupIsGivenTheTimeToHail(t *testing.T) {
	const turns = 7
	d := lonely(t, 100)
	d.pass(patience*turns - 2)
	if n := d.count(me, election.MarkedCrashed); n != 0 {
		t.Errorf("%d are suspects before their turns were over", n)
	}
	d.says(1, election.Probe, 0, election.Hold{})
	d.pass(2)
	if n := d.count(me, election.MarkedCrashed); n != 98 {
		t.Errorf("%d are suspects, want all but the one that was heard of", n)
	}
	d.pass(patience * turns)
	if n := d.count(me, election.MarkedCrashed); n != 99 {
		t.Errorf("%d are suspects, want all", n)
	}
}
