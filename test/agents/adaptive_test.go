package agents

import (
	"context"
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// adaptiveCluster is a group whose timing adapts, and whose heartbeats have become more
// frequent.
type adaptiveCluster struct {
	*testGroup
	coordinator string
}

// startAdaptive starts three agents and waits until their heartbeats are more frequent.
// The intervals are long, so that this happens on a busy machine, too.
func startAdaptive(t *testing.T) *adaptiveCluster {
	t.Helper()
	c := &adaptiveCluster{testGroup: newGroup(t, agentcluster.Options{Agents: 3, Trace: true, Group: agentcluster.Group{
		Safety:     &agentcluster.Safety{Mode: "Majority", LeaseMillis: 10_000},
		Preemption: &agentcluster.Preemption{Policy: "Never"},
		Timing:     &agentcluster.Timing{HeartbeatMillis: 2000, MinHeartbeatMillis: 500},
	}})}
	c.startConnected()
	c.coordinator = c.awaitCoordinator()
	for _, name := range c.Names() {
		c.awaitHeartbeat(name, "below 2", func(seconds float64) bool { return seconds < 2 })
	}
	return c
}

// awaitHeartbeat waits for an interval of heartbeats, as an agent reports it.
func (c *adaptiveCluster) awaitHeartbeat(name, wanted string, is func(seconds float64) bool) {
	c.t.Helper()
	c.await(func(ctx context.Context) error {
		seconds, err := c.Metric(ctx, name, "conclave_heartbeat_seconds")
		if err == nil && !is(seconds) {
			err = fmt.Errorf("the heartbeats of %s have an interval of %g s, want %s", name, seconds, wanted)
		}
		return err
	})
}

// TestSilentCoordinatorIsReplacedWhileTimingAdapts: the coordinator falls silent while
// leases are shorter than the configured one. The traces of the agents are checked for two
// holders.
func TestSilentCoordinatorIsReplacedWhileTimingAdapts(t *testing.T) {
	need.Complete(t)
	t.Parallel()
	c := startAdaptive(t)
	c.pause(c.coordinator)
	survivors := c.others(c.coordinator)
	next := ""
	c.await(func(ctx context.Context) (err error) {
		if next, err = c.AwaitCoordinator(ctx, survivors...); err == nil && next == c.coordinator {
			err = fmt.Errorf("the survivors %v still follow %s", survivors, next)
		}
		return err
	})
	c.resume(c.coordinator)
	if now := c.awaitCoordinator(); now != next {
		t.Errorf("got coordinator %s, want %s", now, next)
	}
	c.checkTraces()
}

// TestDelayMakesHeartbeatsLonger: a follower that has no CPU time answers late.
func TestDelayMakesHeartbeatsLonger(t *testing.T) {
	need.Complete(t)
	t.Parallel()
	c := startAdaptive(t)
	follower := c.others(c.coordinator)[0]
	c.pause(follower)
	c.await(func(ctx context.Context) error {
		status, err := c.Status(ctx, c.coordinator)
		if err != nil {
			return err
		}
		for _, p := range status.Processes {
			if p.Name == follower && p.Status == "Crashed" {
				return nil
			}
		}
		return fmt.Errorf("%s doesn't suspect %s", c.coordinator, follower)
	})
	c.resume(follower)
	for _, name := range c.Names() {
		c.awaitHeartbeat(name, "2", func(seconds float64) bool { return seconds == 2 })
	}
	if leader := c.leader(c.coordinator); !leader.Leading {
		t.Errorf("got %+v, want the same coordinator", leader)
	}
}
