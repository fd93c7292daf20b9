package agents

import (
	"context"
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestSilentCoordinatorIsReplacedAfterLeaseGrew: renewals are late because the followers are paused, so leases become
// longer. Then the coordinator falls silent. The traces of the agents are checked for two holders.
func TestSilentCoordinatorIsReplacedAfterLeaseGrew(t *testing.T) {
	need.Complete(t)
	t.Parallel()
	const usual, longest = 4.0, 8.0 // times the interval of heartbeats
	c := newGroup(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{
		Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: 1000},
		Preemption: agentcluster.Preemption{Policy: "Never"},
		Timing:     agentcluster.Timing{HeartbeatMillis: 100},
	}})
	c.startConnected()
	coordinator := c.awaitCoordinator()
	for _, follower := range c.others(coordinator) {
		c.pause(follower)
	}
	c.awaitSuspicionTimeout(coordinator,
		func(heartbeats float64) bool { return heartbeats > usual && heartbeats <= longest })
	for _, follower := range c.others(coordinator) {
		c.resume(follower)
	}
	coordinator = c.awaitCoordinator() // Another one, if the machine was so busy that the lease has lapsed.
	for _, follower := range c.others(coordinator) {
		c.awaitSuspicionTimeout(follower, func(heartbeats float64) bool { return heartbeats > usual })
	}
	c.pause(coordinator)
	survivors := c.others(coordinator)
	next := ""
	c.await(func(ctx context.Context) (err error) {
		if next, err = c.AwaitCoordinator(ctx, survivors...); err == nil && next == coordinator {
			err = fmt.Errorf("the survivors %v still follow %s", survivors, next)
		}
		return err
	})
	c.resume(coordinator)
	expect.Equalf(t, c.awaitCoordinator(), next, "coordinator")
	c.checkTraces()
}

// awaitSuspicionTimeout waits for a suspicion timeout of so many heartbeats, as an agent reports it.
func (g *testGroup) awaitSuspicionTimeout(name string, is func(heartbeats float64) bool) {
	g.t.Helper()
	g.await(func(ctx context.Context) error {
		seconds, err := g.Metric(ctx, name, "conclave_suspicion_timeout_seconds")
		if err == nil && !is(10*seconds) {
			err = fmt.Errorf("the suspicion timeout of %s is %g s", name, seconds)
		}
		return err
	})
}
