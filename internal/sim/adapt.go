package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// minHeartbeats are the shortest heartbeats of processes whose timing adapts. 0 and the
// longest heartbeat stand for one that doesn't adapt.
var minHeartbeats = [...]election.Tick{0, heartbeat * 2 / 5, heartbeat * 2 / 5, heartbeat * 3 / 5, heartbeat * 4 / 5, heartbeat}

// drawAdaptation draws within which bounds and how soon the timing of an incarnation
// adapts. So a coordinator and its members may have different bounds, as while a group
// changes its settings. The calm periods are short, so that the timing changes often.
func (sch *schedule) drawAdaptation(s *simulation, c *office.Config) {
	if sch.faults&Adapt != 0 {
		c.MinHeartbeat = minHeartbeats[s.more.below(len(minHeartbeats))]
		c.CalmPeriod = election.Tick(s.more.between(1, int(3*heartbeat)))
	}
}
