package agent

import (
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
)

// startLeaseTimer handles a group whose lease has become shorter. When the longest lease of
// earlier grants has expired, it records that only the shorter one is in force. Once stop
// has returned, it records nothing.
func (a *Agent) startLeaseTimer(g config.Group, longest time.Duration) (stop func()) {
	lease := g.Safety.Lease
	if longest <= lease {
		return func() {}
	}
	var mu sync.Mutex
	stopped := false
	timer := time.AfterFunc(longest, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		if err := a.options.Store.LeaseExpired(state.KeyOf(&g), lease); err != nil {
			a.options.Log.Warn("cannot record that the longer lease has expired; the next start waits for it again", "group", g.Name, "error", err)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
