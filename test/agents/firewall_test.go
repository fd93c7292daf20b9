package agents

import (
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestFirewallThatRejects separates the coordinator by a firewall that answers with ICMP messages, as
// some network policies do. Connections are refused then, as if the process had ended. But the coordinator
// holds its lease, so that the others must wait.
func TestFirewallThatRejects(t *testing.T) {
	agentcluster.NeedPartitions(t)
	for what, both := range map[string]bool{"what the coordinator receives": false, "everything": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			testFirewallThatRejects(t, both)
		})
	}
}

func testFirewallThatRejects(t *testing.T, bothDirections bool) {
	cluster := agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Safety:     &agentcluster.Safety{Mode: "Majority", LeaseMillis: 6000},
		Preemption: &agentcluster.Preemption{Policy: "Never"},
	}})
	ctx := testContext(t)
	must.Succeed(t, cluster.Start())
	must.Succeed(t, cluster.AwaitConnected(ctx))
	former, err := cluster.AwaitCoordinator(ctx)
	must.Succeed(t, err)
	others := slices.DeleteFunc(cluster.Names(), func(name string) bool { return name == former })
	observeOffice(t, cluster, cluster.Names()...)

	var cuts []agentcluster.Cut
	for _, other := range others {
		cuts = append(cuts, agentcluster.Cut{From: other, To: former})
		if bothDirections {
			cuts = append(cuts, agentcluster.Cut{From: former, To: other})
		}
	}
	must.Succeed(t, cluster.Reject(cuts...))
	_, err = cluster.AwaitCoordinator(ctx, others...)
	must.Succeed(t, err)
	for _, name := range cluster.Names() {
		log, err := cluster.Agent(name).ReadLog()
		must.Succeed(t, err)
		if strings.Contains(string(log), "peer process ended") {
			t.Errorf("%s took a rejected connection for the end of a process, want only its silence", name)
		}
	}
	must.Succeed(t, cluster.Heal())
	must.Succeed(t, cluster.AwaitConnected(ctx))
}
