package agents

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// skew is nearly the difference between clocks that agents accept.
const skew = 29 * time.Second

// failoverMax is much less than the wait for a clock that is behind or ahead of the three that
// agree, and much more than a failover takes on a busy machine.
const failoverMax = skew / 3

// clockTest is a group of five agents whose wall clocks the test sets.
type clockTest struct {
	*testGroup
	// token is that of the last coordinator.
	token uint64
}

// TestCoordinatorWithClocksThatDiffer: the clocks of the agents differ by as much as they accept, and are set forward
// and back while the agents run. Coordinators crash, or are suspended for longer than their lease. There is one
// coordinator at a time, tokens rise, and no failover waits for a clock. A majority of the clocks agrees: see ADR 13.
func TestCoordinatorWithClocksThatDiffer(t *testing.T) {
	need.Complete(t)
	c := startClockTest(t, map[string]time.Duration{"a": -skew / 2, "e": skew / 2})
	c.failover("the clocks differ", c.crash)
	c.failover("the former coordinator has restarted", c.crash)
	c.failover("the coordinator is suspended", c.suspend)
	c.check(c.Kill())
	c.start() // They remember nothing.
	c.failover("all agents have restarted", c.crash)
	c.setClocks(map[string]time.Duration{"a": skew / 2, "b": -skew / 2, "e": 0})
	c.failover("clocks were set forward and back", c.crash)
	c.failover("clocks were set, and the coordinator is suspended", c.suspend)
}

// startClockTest starts agents with these clocks.
func startClockTest(t *testing.T, clocks map[string]time.Duration) *clockTest {
	c := &clockTest{testGroup: newGroup(t, agentcluster.Options{Agents: 5, TLS: true, Group: agentcluster.Group{
		Safety: agentcluster.Safety{Mode: "Majority", LeaseMillis: 500}, Preemption: agentcluster.Preemption{Policy: "Never"},
	}})}
	for name, ahead := range clocks {
		c.check(c.Agent(name).SetClock(ahead))
	}
	c.start()
	observeOffice(t, c.Cluster, c.Names()...)
	c.settle()
	return c
}

// settle waits until all agents are connected and agree on a coordinator. Its token must
// not be lower than that of an earlier one.
func (c *clockTest) settle() (coordinator string) {
	c.t.Helper()
	c.awaitConnected()
	coordinator = c.awaitCoordinator()
	leader := c.leader(coordinator)
	expect.AtLeastf(c.t, leader.Token, c.token, "token of %s (as before)", coordinator)
	c.token = max(c.token, leader.Token)
	return coordinator
}

// failover lets the coordinator fail, and measures the time until another one leads. fail returns a function that
// repairs the former one. On a machine that is so busy that threads wait for a good part of a heartbeat, the members
// may not have recovered from the others yet what they granted before they started, and then their clocks count. Then
// the attempt proves nothing, and is repeated.
func (c *clockTest) failover(when string, fail func(coordinator string) (repair func())) {
	c.t.Helper()
	const attempts, stallMax = 5, graphHeartbeat / 2
	for attempt := 1; ; attempt++ {
		w := startWitness()
		elapsed := c.attemptFailover(when, fail)
		stall := w.stop()
		if elapsed <= failoverMax {
			return
		}
		if stall < stallMax || attempt == attempts {
			c.t.Errorf("%s: got a failover of %v, want it not to wait for the clocks, which differ by %v", when, elapsed, skew)
			return
		}
		c.t.Logf("%s: repeating, because threads waited for up to %s", when, stall)
	}
}

// attemptFailover returns how long the failover took.
func (c *clockTest) attemptFailover(when string, fail func(coordinator string) (repair func())) time.Duration {
	c.t.Helper()
	former, token := c.settle(), c.token
	began := time.Now()
	repair := fail(former)
	next := c.awaitCoordinator(c.others(former)...)
	elapsed := time.Since(began)
	c.t.Logf("%s: %s succeeds %s after %v", when, next, former, elapsed)
	repair()
	if c.settle(); c.token <= token {
		c.t.Errorf("%s: got token %d after %d, want a higher one", when, c.token, token)
	}
	return elapsed
}

func (c *clockTest) crash(coordinator string) func() {
	c.kill(coordinator)
	return func() { c.start(coordinator) }
}

// suspend stops the coordinator until another one leads, which is longer than its lease.
func (c *clockTest) suspend(coordinator string) func() {
	c.pause(coordinator)
	return func() { c.resume(coordinator) }
}

// setClocks sets the clocks, and waits until all agents have noticed.
func (c *clockTest) setClocks(clocks map[string]time.Duration) {
	c.t.Helper()
	for name, ahead := range clocks {
		c.check(c.Agent(name).SetClock(ahead))
	}
	for name := range clocks {
		c.awaitLog(name, "corrected clock")
	}
}

// awaitLog waits for a line in an agent's log.
func (c *clockTest) awaitLog(name, text string) {
	c.t.Helper()
	c.await(func(context.Context) error {
		log, err := c.Agent(name).ReadLog()
		if err == nil && !strings.Contains(string(log), text) {
			err = fmt.Errorf("the log of %s lacks %q", name, text)
		}
		return err
	})
}

// TestAgentRejoinsWhenItsClockIsRight: an agent that started with a wrong clock can't connect,
// and reports that. It takes part soon after the clock was set, without a restart.
func TestAgentRejoinsWhenItsClockIsRight(t *testing.T) {
	need.Complete(t)
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		c := startClockTest(t, nil)
		e := c.Agent("e")
		c.kill("e")
		c.check(e.SetClock(wrong))
		c.start("e")
		direction := "ahead of"
		if wrong > 0 {
			direction = "behind"
		}
		c.await(func(ctx context.Context) error {
			ready, reasons, err := c.Ready(ctx, "e")
			for _, peer := range []string{"a", "b", "c", "d"} {
				want := "clock of " + peer + " is "
				if err == nil && (ready || !strings.Contains(reasons, want) ||
					!strings.Contains(reasons, direction+" the clock of this agent: correct the wrong clock")) {
					err = fmt.Errorf("clock off by %v: got ready %t with reasons %q, want %q", wrong, ready, reasons, want)
				}
			}
			return err
		})
		process := e.PID()
		c.check(e.SetClock(0))
		began := time.Now()
		c.settle()
		c.await(func(ctx context.Context) error {
			ready, reasons, err := c.Ready(ctx, "e")
			if err == nil && !ready {
				err = fmt.Errorf("e isn't ready: %s", reasons)
			}
			return err
		})
		t.Logf("clock off by %v: e is back after %v", wrong, time.Since(began))
		if elapsed := time.Since(began); elapsed > time.Minute {
			t.Errorf("clock off by %v: e was back after %v, want a minute at most", wrong, elapsed)
		}
		expect.Equalf(t, e.PID(), process, "process of e (which started with the wrong clock)")
	}
}
