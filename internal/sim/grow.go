package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// usualLeases are the leases that processes request while nothing is late, in quarters of the longest one.
var usualLeases = [...]election.Tick{1, 2, 2, 4}

// drawGrowth draws the usual lease of an incarnation. So a coordinator and its members may have different ones, as while
// a group changes its settings. The calm periods are short, so that leases grow and shrink often.
func (sch *schedule) drawGrowth(s *simulation, c *office.Config) {
	if sch.faults&Grow == 0 {
		return
	}
	if usual := usualLeases[s.rng3.below(len(usualLeases))] * c.Lease / 4; usual > 2*c.Heartbeat {
		c.UsualLease, c.CalmPeriod = usual, heartbeat
	}
}
