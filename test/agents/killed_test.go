package agents

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// longLeaseMillis is the lease of killedCluster. An agent that has lost its memory would wait for so long.
const longLeaseMillis = 60_000

// killedCluster is three agents, of which two are killed in each round.
type killedCluster struct {
	*testGroup
	random *rand.Rand
}

func newKilledCluster(t testing.TB) *killedCluster {
	t.Helper()
	const seed = 1
	c := &killedCluster{random: rand.New(rand.NewPCG(seed, seed)), testGroup: newGroup(t, agentcluster.Options{
		Agents: 3, Group: agentcluster.Group{
			Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: 500},
			Preemption: agentcluster.Preemption{Policy: "Never"},
			Timing:     agentcluster.Timing{HeartbeatMillis: 20, SuspicionTimeoutMillis: new(int32(2000))},
		},
	})}
	c.startConnected()
	c.awaitCoordinator()
	for _, name := range c.Names() { // New agents have no memory, and wait for a short lease.
		c.check(c.WriteConfig(name, func(f *agentcluster.File) { f.Groups[0].Safety.LeaseMillis = longLeaseMillis }))
	}
	for _, name := range c.Names() {
		c.await(func(ctx context.Context) error {
			status, err := c.Status(ctx, name)
			if err == nil && status.Timing.LeaseMillis != longLeaseMillis {
				err = fmt.Errorf("%s has a lease of %d ms, want %d", name, status.Timing.LeaseMillis, longLeaseMillis)
			}
			return err
		})
	}
	return c
}

// awaitCoordinator returns the coordinator of the running agents. It must be there before a
// lease that has just begun can end.
func (c *killedCluster) awaitCoordinator() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, longLeaseMillis/2*time.Millisecond)
	defer cancel()
	coordinator, err := c.AwaitCoordinator(ctx)
	c.check(err)
	return coordinator
}

// followers returns the running agents other than the coordinator, in a random order.
func (c *killedCluster) followers(coordinator string) []string {
	all := slices.DeleteFunc(c.Running(), func(name string) bool { return name == coordinator })
	c.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// TestKilledAgentsVoteAtOnce kills a follower at a random moment and starts it again. Then it
// kills the coordinator, whose successor needs the grant of that follower. Without its
// memory, the follower would give none within the time that the test allows.
func TestKilledAgentsVoteAtOnce(t *testing.T) {
	need.Complete(t)
	const rounds = 60
	c := newKilledCluster(t)
	for range rounds {
		coordinator := c.awaitCoordinator()
		c.awaitConnected()
		follower := c.followers(coordinator)[0]
		time.Sleep(time.Duration(c.random.Int64N(int64(40 * time.Millisecond)))) // a random moment in the heartbeats
		c.kill(follower)
		c.start(follower)
		must.Equalf(t, c.awaitCoordinator(), coordinator, "coordinator (as before the restart of %s)", follower)
		before := c.leader(follower)
		c.awaitConnected()
		c.kill(coordinator)
		after := c.leader(c.awaitCoordinator())
		expect.AtLeastf(t, after.Term, before.Term+1, "term after term %d", before.Term)
		c.start(coordinator)
	}
	c.awaitCoordinator()
	c.checkTraces()
}

// BenchmarkVoteAfterRestart measures the time from the start of an agent's process until it
// has granted the coordinator's next request. That is sent every 20 ms.
func BenchmarkVoteAfterRestart(b *testing.B) {
	c := newKilledCluster(b)
	var took []time.Duration
	for b.Loop() {
		follower := c.followers(c.awaitCoordinator())[0]
		c.awaitConnected()
		c.kill(follower)
		began := time.Now()
		c.start(follower)
		c.await(func(ctx context.Context) error {
			metrics, err := c.Metrics(ctx, follower)
			if err == nil && !strings.Contains(metrics, `kind="GRANT"`) {
				err = fmt.Errorf("%s has sent no GRANT", follower)
			}
			return err
		})
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms/p50")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "ms/p99")
}

// TestPausedFollowerSuspectsNobody pauses a follower for longer than the suspicion timeout, as a node without CPU time
// does. The coordinator's heartbeats wait in its socket, so it must not suspect the coordinator when it runs again.
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
		Timing: agentcluster.Timing{HeartbeatMillis: 100, SuspicionTimeoutMillis: new(
			int32(suspicionTimeout.Milliseconds()))},
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
