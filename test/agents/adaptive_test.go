package agents

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// adaptiveCluster is a group whose timing adapts, and whose heartbeats have become more
// frequent.
type adaptiveCluster struct {
	*agentcluster.Cluster
	t           *testing.T
	ctx         context.Context
	coordinator string
}

// startAdaptive starts three agents and waits until their heartbeats are more frequent.
// The intervals are long, so that this happens on a busy machine, too.
func startAdaptive(t *testing.T) *adaptiveCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	c := &adaptiveCluster{t: t, ctx: ctx, Cluster: agentcluster.Start(t, agentcluster.Options{Agents: 3, Trace: true, Group: agentcluster.Group{
		Safety:     &agentcluster.Safety{Mode: "Majority", LeaseMillis: 10_000},
		Preemption: &agentcluster.Preemption{Policy: "Never"},
		Timing:     &agentcluster.Timing{HeartbeatMillis: 2000, MinHeartbeatMillis: 500},
	}})}
	c.check(c.Start())
	c.check(c.AwaitConnected(ctx))
	coordinator, err := c.AwaitCoordinator(ctx)
	c.check(err)
	c.coordinator = coordinator
	for _, name := range c.Names() {
		c.awaitHeartbeat(name, "below 2", func(seconds float64) bool { return seconds < 2 })
	}
	return c
}

func (c *adaptiveCluster) check(err error) {
	c.t.Helper()
	must.Succeed(c.t, err)
}

func (c *adaptiveCluster) followers() []string {
	return slices.DeleteFunc(c.Names(), func(name string) bool { return name == c.coordinator })
}

// awaitHeartbeat waits for an interval of heartbeats, as an agent reports it.
func (c *adaptiveCluster) awaitHeartbeat(name, wanted string, is func(seconds float64) bool) {
	c.t.Helper()
	c.check(agentcluster.Await(c.ctx, func(ctx context.Context) error {
		seconds, err := c.Metric(ctx, name, "conclave_heartbeat_seconds")
		if err == nil && !is(seconds) {
			err = fmt.Errorf("the heartbeats of %s have an interval of %g s, want %s", name, seconds, wanted)
		}
		return err
	}))
}

// TestSilentCoordinatorIsReplacedWhileTimingAdapts: the coordinator falls silent while
// leases are shorter than the configured one. The traces of the agents are checked for two
// holders.
func TestSilentCoordinatorIsReplacedWhileTimingAdapts(t *testing.T) {
	need.Complete(t)
	t.Parallel()
	c := startAdaptive(t)
	_, err := c.Agent(c.coordinator).Stop()
	c.check(err)
	survivors := c.followers()
	next := ""
	c.check(agentcluster.Await(c.ctx, func(ctx context.Context) (err error) {
		if next, err = c.AwaitCoordinator(ctx, survivors...); err == nil && next == c.coordinator {
			err = fmt.Errorf("the survivors %v still follow %s", survivors, next)
		}
		return err
	}))
	c.check(c.Agent(c.coordinator).Continue())
	if now, err := c.AwaitCoordinator(c.ctx); err != nil || now != next {
		t.Errorf("got coordinator %q, %v, want %s", now, err, next)
	}
	c.check(c.Kill())
	_, _, err = c.CheckTraces("ledger")
	c.check(err)
}

// TestDelayMakesHeartbeatsLonger: a follower that has no CPU time answers late.
func TestDelayMakesHeartbeatsLonger(t *testing.T) {
	need.Complete(t)
	t.Parallel()
	c := startAdaptive(t)
	follower := c.followers()[0]
	_, err := c.Agent(follower).Stop()
	c.check(err)
	c.check(agentcluster.Await(c.ctx, func(ctx context.Context) error {
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
	}))
	c.check(c.Agent(follower).Continue())
	for _, name := range c.Names() {
		c.awaitHeartbeat(name, "2", func(seconds float64) bool { return seconds == 2 })
	}
	leader, err := c.Leader(c.ctx, c.coordinator)
	if err != nil || !leader.Leading {
		t.Errorf("got %+v, %v, want the same coordinator", leader, err)
	}
}
