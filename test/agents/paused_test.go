package agents

import (
	"bufio"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
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
		rounds   = 3
		patience = 3 * time.Second
		pause    = 4 * time.Second
	)
	cluster := agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Safety:     &agentcluster.Safety{Mode: "Majority", LeaseMillis: 6000},
		Preemption: &agentcluster.Preemption{Policy: "Never"},
		Timing:     &agentcluster.Timing{HeartbeatMillis: 100, PatienceMillis: int(patience.Milliseconds())},
	}})
	ctx := testContext(t)
	must.Succeed(t, cluster.Start())
	must.Succeed(t, cluster.AwaitConnected(ctx))
	coordinator, err := cluster.AwaitCoordinator(ctx)
	must.Succeed(t, err)
	follower := slices.DeleteFunc(cluster.Names(), func(name string) bool { return name == coordinator })[0]
	before := suspicions(ctx, t, cluster, follower)
	for range rounds {
		_, err := cluster.Agent(follower).Stop()
		must.Succeed(t, err)
		time.Sleep(pause) // The duration of the fault.
		must.Succeed(t, cluster.Agent(follower).Continue())
		now, err := cluster.AwaitCoordinator(ctx)
		must.Succeed(t, err)
		if now != coordinator {
			t.Fatalf("got coordinator %s after a pause of %s, want %s", now, follower, coordinator)
		}
	}
	if got := suspicions(ctx, t, cluster, follower) - before; got > 0 {
		t.Errorf("got %d suspicions in %d pauses, want none", got, rounds)
	}
}

// suspicions returns how often an agent has suspected a peer.
func suspicions(ctx context.Context, t *testing.T, cluster *agentcluster.Cluster, agent string) int {
	t.Helper()
	metrics, err := cluster.Metrics(ctx, agent)
	must.Succeed(t, err)
	for lines := bufio.NewScanner(strings.NewReader(metrics)); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), `conclave_suspicions_total{group="ledger"} `); found {
			n, err := strconv.Atoi(value)
			must.Succeed(t, err)
			return n
		}
	}
	t.Fatalf("%s has no metric conclave_suspicions_total", agent)
	return 0
}
