package agent

import (
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
)

// outlast notes, unless it is stopped before, when nothing is in force any more
// that this agent granted for longer than the group's lease is now.
func (a *Agent) startLeaseTimer(of config.Group, promised time.Duration) (stop func()) {
	lease := of.Safety.Lease
	if promised <= lease {
		return func() {}
	}
	log := a.options.Log.With("group", of.Name)
	log.Info("grants nothing for as long as the lease that it had before", "lease", promised)
	timer := time.AfterFunc(promised, func() {
		if err := a.options.Store.LeaseExpired(state.KeyOf(&of), lease); err != nil {
			log.Warn("will wait for the longer lease at its next start, too", "error", err)
		}
	})
	return func() { timer.Stop() }
}
