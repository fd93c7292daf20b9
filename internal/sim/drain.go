package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
)

// waitsForApplications returns how long the processes may wait for applications, or for stable periods, before they agree.
func (sch *schedule) waitsForApplications() election.Tick {
	if sch.faults&(Drains|Burst) == 0 {
		return 0
	}
	return 3 * (sch.timing.drain + sch.timing.stable)
}

// sparesTenures are the faults that end no tenure, as long as enough members can grant.
const sparesTenures = Members | StepDown | Clocks | Skew | Jump | Correct | Recovery | Drains | Operator | Mixed

// checkDrain checks that a process whose tenure has expired wasn't waiting for its application to stop. It has the drain
// timeout for that, also if it is no longer a member of the latest list: the next one waits for it. With the tight timing, which
// Drains doesn't have, and with the leases of Grow, a list that the others adopt half a lease sooner ends any tenure. A tenure that began
// while a list was on its way may end, too: another process may have claimed a higher term under that list before.
func (s *simulation) checkDrain(id election.ID, term election.Term) {
	p := &s.processes[id]
	waits := p.running && !p.appDead && p.stopTerm == term && p.clock.local(s.queue.now) < p.clock.local(p.stopRequestedAt)+s.schedule.timing.drain
	listOnItsWay := s.operator.publishedAt <= p.tenureSince && p.tenureSince <= p.adoptedAt
	if waits && !listOnItsWay && s.usesGrants() && s.schedule.faults&Drains != 0 && s.schedule.faults&^sparesTenures == 0 && s.majorityGrants(p.roster) {
		s.checker.fail("drain", fmt.Sprintf("the tenure of process %d expired %d ticks after its application was asked to stop, want %d",
			id, s.queue.now-p.stopRequestedAt, s.schedule.timing.drain))
	}
}

// majorityGrants reports whether a majority of a list, and of the one before, have been able to grant for a lease.
func (s *simulation) majorityGrants(roster *election.Roster) bool {
	for r := roster; r != nil; r = r.Previous {
		n := 0
		for _, m := range r.Ring() {
			if p := &s.processes[m.ID]; p.up && p.clock.local(s.queue.now) >= p.lease.waitsUntil+p.lease.current {
				n++
			}
		}
		if n < r.Majority() {
			return false
		}
	}
	return true
}
