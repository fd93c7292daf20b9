package agents

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestPausedFollowerSuspectsNobody pauses a follower for longer than the suspicion
// timeout, as a node without CPU time does. The coordinator's heartbeats wait in its
// socket, so it must not suspect the coordinator when it runs again.
func TestPausedFollowerSuspectsNobody(t *testing.T) {
	need.Complete(t)
	t.Parallel()
	// The timeouts are so long that only the pauses cause silence, even on a busy machine.
	const (
		rounds           = 3
		suspicionTimeout = 3 * time.Second
		pause            = 4 * time.Second
	)
	group := newGroup(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: 6000},
		Preemption: agentcluster.Preemption{Policy: "Never"},
		Timing:     agentcluster.Timing{HeartbeatMillis: 100, SuspicionTimeoutMillis: new(int32(suspicionTimeout.Milliseconds()))},
	}})
	group.startConnected()
	coordinator := group.awaitCoordinator()
	follower := group.others(coordinator)[0]
	const suspicions = "conclave_suspicions_total"
	before := group.metric(follower, suspicions)
	for range rounds {
		group.pause(follower)
		time.Sleep(pause) // The duration of the fault.
		group.resume(follower)
		must.Equalf(t, group.awaitCoordinator(), coordinator, "coordinator after a pause of %s", follower)
	}
	expect.Equalf(t, group.metric(follower, suspicions)-before, 0, "suspicions in %d pauses", rounds)
}
