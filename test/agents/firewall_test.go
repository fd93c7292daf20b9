package agents

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
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
	group := newGroup(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Safety:     agentcluster.Safety{Mode: "Majority", LeaseMillis: 6000},
		Preemption: agentcluster.Preemption{Policy: "Never"},
	}})
	group.startConnected()
	former := group.awaitCoordinator()
	others := group.others(former)
	observeOffice(t, group.Cluster, group.Names()...)

	var cuts []agentcluster.Cut
	for _, other := range others {
		cuts = append(cuts, agentcluster.Cut{From: other, To: former})
		if bothDirections {
			cuts = append(cuts, agentcluster.Cut{From: former, To: other})
		}
	}
	group.check(group.Reject(cuts...))
	group.awaitCoordinator(others...)
	for _, name := range group.Names() {
		log, err := group.Agent(name).ReadLog()
		group.check(err)
		if strings.Contains(string(log), "peer process ended") {
			t.Errorf("%s took a rejected connection for the end of a process, want only its silence", name)
		}
	}
	group.check(group.Heal())
	group.awaitConnected()
}
