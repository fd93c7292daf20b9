package agent

import (
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
)

// startLeaseTimer handles a group whose lease has become shorter. Until the longest
// lease of earlier grants has expired, the group's office grants nothing. Then the
// timer records that only the shorter lease is in force.
func (a *Agent) startLeaseTimer(g config.Group, longest time.Duration) (stop func()) {
	lease := g.Safety.Lease
	if longest <= lease {
		return func() {}
	}
	log := a.options.Log.With("group", g.Name)
	log.Info("waiting for the previous, longer lease to expire before granting", "lease", longest)
	timer := time.AfterFunc(longest, func() {
		if err := a.options.Store.LeaseExpired(state.KeyOf(&g), lease); err != nil {
			log.Warn("cannot record that the longer lease has expired; the next start waits for it again", "error", err)
		}
	})
	return func() { timer.Stop() }
}
