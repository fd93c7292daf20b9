package office_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// rollout is a group whose pods are replaced, one at a time. Each replacement is a list, whose floor
// is raised when it is published, when the replaced pod has departed, and when it settles.
type rollout struct {
	*group
	roster *election.Roster
}

// nextFloor is the floor by the operator's clock, which is that of the slowest member.
func (r *rollout) nextFloor() election.Term {
	return election.NextFloor(r.roster.Floor, 10_000_000+election.Epoch(r.now/(second/10)))
}

// replace replaces the lowest member by one of another ID.
func (r *rollout) replace(by election.ID) {
	r.t.Helper()
	before, ids := r.roster, []election.ID{by}
	old := election.ID(0)
	for _, m := range before.Ring() {
		if old == 0 && r.holders()[0] != m.ID {
			old = m.ID
			continue
		}
		ids = append(ids, m.ID)
	}
	list, floor := newRoster(r.t, before.Version+1, ids...), r.nextFloor()
	r.roster = list.Succeed(before, floor)
	r.crash(old, true)
	r.start(by, r.roster, nil)
	r.adopt(r.roster, ids[1:]...)
	r.advance(memberlist.AdoptionWait(second / 2))
	r.roster = list.Succeed(before, r.nextFloor(), old)
	r.adopt(r.roster, ids...)
	r.advance(second / 10)
	settled := make([]election.ID, 0, len(before.Ring()))
	for _, m := range before.Ring() {
		settled = append(settled, m.ID)
	}
	r.roster = list.Succeed(before, r.nextFloor(), settled...)
	r.adopt(r.roster, ids...)
}

// TestFailoverAfterManyLists: lists that follow each other quickly raise the floor far above
// all clocks. After that, a failover takes no longer than otherwise, also if the clocks
// differ, and if only a majority is left.
func TestFailoverAfterManyLists(t *testing.T) {
	inGrantModes(t, func(t *testing.T, mode office.Mode) {
		for _, skew := range []election.Epoch{0, 5, 14} {
			for _, left := range []int{4, 3} {
				ahead := map[election.ID]election.Epoch{2: skew, 3: skew / 2, 5: skew, 6: skew / 3, 7: skew} // in seconds
				r := &rollout{group: newSkewedGroup(t, mode, ahead), roster: newRoster(t, 1, 1, 2, 3, 4, 5)}
				for _, m := range r.roster.Ring() {
					r.start(m.ID, r.roster, nil)
				}
				r.untilHolder(60 * second)
				r.advance(2 * second)
				for range 20 {
					by := election.ID(1)
					for r.roster.Has(by) || r.machines[by] != nil {
						by++
					}
					r.replace(by)
					r.advance(2*second - memberlist.AdoptionWait(second/2) - second/10)
				}
				r.advance(second)
				worst := election.Tick(0)
				for range 4 {
					var down []election.ID
					for len(down) < 5-left {
						victim := r.holders()[0]
						r.crash(victim, true)
						down = append(down, victim)
						took := r.untilHolder(120 * second)
						worst = max(worst, took)
						t.Logf("clocks %d s apart, %d left: next coordinator after %d ms", skew, 5-len(down), took)
					}
					slices.Sort(down)
					for _, id := range down {
						r.start(id, r.roster, nil)
					}
					r.advance(2 * second)
				}
				if usual := map[office.Mode]election.Tick{office.Strict: second / 2}[mode]; worst > usual+second {
					t.Errorf("clocks %d s apart, %d members left: got no coordinator for %d ms, want two leases more than usual at most", skew, left, worst)
				}
			}
		}
	})
}
