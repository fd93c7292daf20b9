package agents

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestProxyHidesTheEndOfAProcess shows why the ports of agents must be excluded from a
// service mesh. A proxy accepts connections on behalf of an agent that was killed, so the
// others notice only its silence. Once the ports are excluded, they notice its end.
func TestProxyHidesTheEndOfAProcess(t *testing.T) {
	need.Complete(t)
	agentcluster.NeedPartitions(t)
	ctx := testContext(t)
	const former = "c"
	agents := agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
		Algorithm: "StatusTable", Timing: &recoveryTiming, // It would take a pause of 3 s to mistake an end for silence.
		Safety: &agentcluster.Safety{Mode: "Majority", LeaseMillis: recoveryLeaseMillis},
	}})
	exclude, err := agents.Intercept()
	if err != nil {
		t.Fatal(err)
	}
	if err := agents.Start(); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for _, want := range []control.EndCause{control.EndSilence, control.EndCrash} {
		coordinate(ctx, t, agents, former)
		if err := agents.AwaitConnected(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := agents.Agent(former).Kill(); err != nil {
			t.Fatal(err)
		}
		if err := agents.Agent(former).AwaitEnd(); err != nil {
			t.Fatal(err)
		}
		e := awaitTranscript(ctx, t, agents, former, last)
		if last = e.Term; e.Cause != want {
			t.Errorf("got cause %q, want %q", e.Cause, want)
		}
		if want == control.EndSilence {
			if err := exclude(); err != nil {
				t.Fatal(err)
			}
			if err := agents.Start(former); err != nil {
				t.Fatal(err)
			}
		}
	}
}
