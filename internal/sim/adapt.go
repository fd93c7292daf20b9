package sim

import (
	"cmp"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// minHeartbeats are the shortest heartbeats of processes whose timing adapts, in fifths of the longest one.
// 0 and 5 stand for one that doesn't adapt.
var minHeartbeats = [...]election.Tick{0, 2, 2, 3, 4, 5}

// usualLeases, for Grow, are the leases that processes request while nothing is late, in quarters of the longest one.
var usualLeases = [...]election.Tick{1, 2, 2, 4}

// drawAdaptation draws within which bounds and how soon the timing of an incarnation
// adapts. So a coordinator and its members may have different bounds, as while a group
// changes its settings. The calm periods are short, so that the timing changes often.
func (sch *schedule) drawAdaptation(s *simulation, c *office.Config) {
	if sch.faults&Adapt != 0 {
		c.MinHeartbeat = minHeartbeats[s.more.below(len(minHeartbeats))] * sch.timing.heartbeat / 5
		c.CalmPeriod = election.Tick(s.more.between(1, int(3*heartbeat)))
	}
	if sch.faults&Grow == 0 {
		return
	}
	if usual := usualLeases[s.extra.below(len(usualLeases))] * c.Lease / 4; usual > 2*c.Heartbeat {
		c.UsualLease, c.CalmPeriod = usual, cmp.Or(c.CalmPeriod, heartbeat)
	}
}
