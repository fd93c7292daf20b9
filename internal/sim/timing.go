package sim

import "github.com/conclave-dev/conclave/internal/election"

// timing are the settings of time that all processes of a schedule have, besides their leases.
type timing struct{ heartbeat, suspicion, stagger, stable, drain election.Tick }

var (
	tightTiming = timing{heartbeat, suspicionTimeout, stagger, 24, 12}
	// defaultTiming has the proportions of the defaults of a group: heartbeats of 100 ms, a suspicion timeout of 400 ms, a
	// stagger of 50 ms, and 5 s for the stable period and the drain, with a lease of 500 ms.
	defaultTiming = timing{lease / 5, lease * 4 / 5, lease / 10, 10 * lease, 10 * lease}
)

// defaultLongEpoch is the length of an epoch with the default timing: an epoch is 40 ms.
const defaultLongEpoch = 2 * lease / 25
