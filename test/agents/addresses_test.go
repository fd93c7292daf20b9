package agents

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestRestartedAgentsFindEachOther: all agents but one restart at other IP addresses, and nobody publishes a new member list. Each of them can dial only the
// remaining one. From that one they learn where the others are.
func TestRestartedAgentsFindEachOther(t *testing.T) {
	ctx := testContext(t)
	agents := agentcluster.Start(t, agentcluster.Options{Agents: 4, TLS: true, Group: agentcluster.Group{
		Safety: &agentcluster.Safety{Mode: "Majority"},
	}})
	must.Succeed(t, agents.Start())
	must.Succeed(t, agents.AwaitConnected(ctx))
	moved := []string{"a", "c", "d"}
	for _, name := range moved {
		if _, err := agents.Agent(name).Kill(); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, agents.WriteConfig(name, move))
	}
	must.Succeed(t, agents.Start(moved...))
	must.Succeed(t, agents.AwaitConnected(ctx))
	if _, err := agents.AwaitCoordinator(ctx); err != nil {
		t.Fatal(err)
	}
}

// move changes the IP address on which an agent listens.
func move(f *agentcluster.File) {
	host, port, _ := strings.Cut(f.Listen, ":")
	f.Listen = host + "1:" + port
}
