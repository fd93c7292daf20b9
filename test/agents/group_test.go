package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// testContext returns a context that limits the waits of a test.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// testGroup is a group of agents. A call that fails ends the test.
type testGroup struct {
	*agentcluster.Cluster

	t   testing.TB
	ctx context.Context
}

func newGroup(t testing.TB, options agentcluster.Options) *testGroup {
	t.Helper()
	return &testGroup{agentcluster.Start(t, options), t, testContext(t)}
}

// newSteadyGroup returns three agents without preemption. The timeouts are so long that a
// coordinator keeps its office on a busy machine.
func newSteadyGroup(t testing.TB) *testGroup {
	t.Helper()
	return newGroup(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: 4000},
		Preemption: agentcluster.Preemption{Policy: "Never"},
		Timing: agentcluster.Timing{HeartbeatMillis: 100, SuspicionTimeoutMillis: new(int32(3000)), DrainMillis: new(
			int32(300))},
	}})
}

// in returns one of several groups.
func (g *testGroup) in(name string) *testGroup { return &testGroup{g.In(name), g.t, g.ctx} }

func (g *testGroup) check(err error) {
	g.t.Helper()
	must.Succeed(g.t, err)
}

// start starts agents, by default all.
func (g *testGroup) start(names ...string) {
	g.t.Helper()
	g.check(g.Start(names...))
}

// startConnected starts all agents and waits until they are connected.
func (g *testGroup) startConnected() {
	g.t.Helper()
	g.start()
	g.awaitConnected()
}

func (g *testGroup) awaitConnected() {
	g.t.Helper()
	g.check(g.AwaitConnected(g.ctx))
}

// await waits until a check succeeds.
func (g *testGroup) await(check func(context.Context) error) {
	g.t.Helper()
	g.check(agentcluster.Await(g.ctx, check))
}

// awaitCoordinator waits until agents agree on a coordinator, by default all that run.
func (g *testGroup) awaitCoordinator(among ...string) string {
	g.t.Helper()
	coordinator, err := g.AwaitCoordinator(g.ctx, among...)
	g.check(err)
	return coordinator
}

// coordinate makes an agent the coordinator, as soon as it is ready, and waits until all agents know it.
func (g *testGroup) coordinate(name string) {
	g.t.Helper()
	g.await(func(ctx context.Context) error {
		coordinator, err := g.AwaitCoordinator(ctx)
		if err != nil || coordinator == name {
			return err
		}
		_, err = g.StepDown(ctx, coordinator, name) // It was the last to start.
		return errors.Join(errors.New("another agent was coordinator"), err)
	})
}

// others returns the agents but one.
func (g *testGroup) others(name string) []string {
	return slices.DeleteFunc(g.Names(), func(other string) bool { return other == name })
}

func (g *testGroup) leader(name string) group.Leader {
	g.t.Helper()
	leader, err := g.Leader(g.ctx, name)
	g.check(err)
	return leader
}

func (g *testGroup) status(name string) group.Status {
	g.t.Helper()
	status, err := g.Status(g.ctx, name)
	g.check(err)
	return status
}

func (g *testGroup) metric(name, metric string) float64 {
	g.t.Helper()
	value, err := g.Metric(g.ctx, name, metric)
	g.check(err)
	return value
}

// kill kills an agent, and returns when. It waits until the process has ended.
func (g *testGroup) kill(name string) time.Time {
	g.t.Helper()
	killed, err := g.Agent(name).Kill()
	g.check(err)
	g.check(g.Agent(name).AwaitEnd())
	return killed
}

// pause stops an agent, and resume continues it.
func (g *testGroup) pause(name string) {
	g.t.Helper()
	_, err := g.Agent(name).Stop()
	g.check(err)
}

func (g *testGroup) resume(name string) {
	g.t.Helper()
	g.check(g.Agent(name).Continue())
}

// TestIneligibleMemberSaysWhy: everywhere where somebody may look.
func TestIneligibleMemberSaysWhy(t *testing.T) {
	t.Parallel()
	group := newGroup(t, agentcluster.Options{
		Agents: 3, Group: agentcluster.Group{Application: agentcluster.Application{Session: "Required"}},
	})
	group.start()
	const why = "no session is open"
	group.await(func(ctx context.Context) error {
		status, statusErr := group.Status(ctx, "a")
		_, ready, readyErr := group.Ready(ctx, "a")
		metrics, metricsErr := group.Metrics(ctx, "a")
		log, logErr := group.Agent("a").ReadLog()
		if err := errors.Join(statusErr, readyErr, metricsErr, logErr); err != nil {
			return err
		}
		row := ""
		for i := range status.Processes {
			row += status.Processes[i].Ineligible
		}
		for place, text := range map[string]string{
			"status row": row, "log": string(log), "/readyz?verbose": ready,
			"metrics": strings.ReplaceAll(metrics, `conclave_ineligible{group="ledger",reason="session"} 1`, why),
		} {
			if !strings.Contains(text, why) {
				return fmt.Errorf("%s: got %q, want %q", place, text, why)
			}
		}
		return nil
	})
}
