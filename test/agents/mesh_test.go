package agents

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
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
	must.Succeed(t, err)
	must.Succeed(t, agents.Start())
	last := uint64(0)
	for _, want := range []control.EndCause{control.EndSilence, control.EndCrash} {
		coordinate(ctx, t, agents, former)
		must.Succeed(t, agents.AwaitConnected(ctx))
		if _, err := agents.Agent(former).Kill(); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, agents.Agent(former).AwaitEnd())
		e := awaitTranscript(ctx, t, agents, former, last)
		if last = e.Term; e.Cause != want {
			t.Errorf("got cause %q, want %q", e.Cause, want)
		}
		if want == control.EndSilence {
			must.Succeed(t, exclude())
			must.Succeed(t, agents.Start(former))
		}
	}
}
