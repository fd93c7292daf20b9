package agents

import (
	"context"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestSurvivorsKnowWhyCoordinatorResigned: its application ends, and later its agent gets SIGTERM, as when a pod is deleted. The
// transcripts say so without the journal of the former coordinator, and so do the metrics of the others.
func TestSurvivorsKnowWhyCoordinatorResigned(t *testing.T) {
	ctx := testContext(t)
	agents := agentcluster.Start(t, agentcluster.Options{Agents: 4, Group: agentcluster.Group{
		Timing: &recoveryTiming, Safety: &agentcluster.Safety{Mode: "Majority", LeaseMillis: recoveryLeaseMillis},
		Preemption: &agentcluster.Preemption{Policy: "Never"},
	}})
	must.Succeed(t, agents.Start())
	coordinate(ctx, t, agents, "d")
	runApplicationUntilItLeads(ctx, t, agents, "d")
	first := awaitTranscript(ctx, t, agents, "d", 0)
	coordinate(ctx, t, agents, "c")
	must.Succeed(t, agents.Agent("c").Terminate())
	must.Succeed(t, agents.Agent("c").AwaitEnd())
	second := awaitTranscript(ctx, t, agents, "c", first.Term)

	for text, want := range map[string]string{
		first.Describe(): "after the application of d closed its session", second.Describe(): "after the agent of c was stopped",
	} {
		if !strings.HasSuffix(text, want) {
			t.Errorf("got %q, want the end %q", text, want)
		}
	}
	metrics, err := agents.Metrics(ctx, "a")
	must.Succeed(t, err)
	for _, cause := range []string{"session_closed", "stopped"} {
		if line := `conclave_elections_total{group="ledger",cause="` + cause + `"} 1`; !strings.Contains(metrics, line) {
			t.Errorf("got metrics of a\n%s\nwant %s", metrics, line)
		}
	}
}

// runApplicationUntilItLeads opens a session, renews it as coordinator, and ends.
func runApplicationUntilItLeads(ctx context.Context, t *testing.T, agents *agentcluster.Cluster, name string) {
	t.Helper()
	running, kill := context.WithCancel(ctx)
	defer kill()
	session, led := "", false
	err := agents.Session(running, name, func(event agentcluster.SessionEvent) {
		switch event.Kind {
		case "session":
			session = event.Session
		case "lead":
			leader, err := agents.Renew(ctx, name, session)
			led = err == nil && leader.Leading
			kill()
		}
	})
	if !led {
		t.Fatalf("%s has not led: %v", name, err)
	}
}
