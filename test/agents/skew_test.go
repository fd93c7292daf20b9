package agents

import (
	"context"
	"flag"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/safety"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

var previousAgent = flag.String("previous-agent", "", "the binary of an earlier release of the agent: see make test-skew")

// TestVersionSkew upgrades the agents of a group one at a time from an earlier release, and
// then back. In each mixture, the coordinator hands over and is killed. Tokens increase all
// the time.
func TestVersionSkew(t *testing.T) {
	if *previousAgent == "" {
		t.Skip("it runs only on request: make test-skew PREVIOUS=COMMIT")
	}
	for _, mode := range []string{"Available", "Majority", "Strict"} {
		t.Run(mode, func(t *testing.T) {
			never := 0
			c := agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: agentcluster.Group{
				Safety:     &agentcluster.Safety{Mode: mode, LeaseMillis: leaseMillis},
				Preemption: &agentcluster.Preemption{Policy: "Never", StableSeconds: &never},
				Timing:     &timing,
			}})
			s := &mixture{cluster: c, binaries: map[bool]string{false: *previousAgent, true: c.Agent("a").Binary()}}
			for _, name := range c.Names() {
				c.Agent(name).SetBinary(*previousAgent)
			}
			must.Succeed(t, c.Start())
			for _, toPresent := range []bool{true, false} {
				for _, name := range c.Names() {
					s.run(t, name, toPresent)
					s.handOver(t)
					s.kill(t)
				}
			}
			t.Logf("%d tenures, the last one in term %d", s.tenures, s.last.Term)
		})
	}
}

// mixture is a group whose agents run different releases.
type mixture struct {
	cluster  *agentcluster.Cluster
	binaries map[bool]string
	last     group.Leader
	tenures  int
}

// run runs one release of the agent, the present one or the previous one.
func (s *mixture) run(t *testing.T, name string, present bool) {
	t.Helper()
	agent := s.cluster.Agent(name)
	must.Succeed(t, agent.Terminate())
	agent.SetBinary(s.binaries[present])
	must.Succeed(t, agent.Start())
	s.settle(t)
}

func (s *mixture) settle(t *testing.T) group.Leader {
	t.Helper()
	ctx := testwait.Context(t)
	must.Succeed(t, s.cluster.AwaitConnected(ctx))
	return s.agree(ctx, t)
}

// agree waits until the running agents agree on a coordinator.
func (s *mixture) agree(ctx context.Context, t *testing.T) group.Leader {
	t.Helper()
	name, err := s.cluster.AwaitCoordinator(ctx)
	must.Succeed(t, err)
	now, err := s.cluster.Leader(ctx, name)
	must.Succeed(t, err)
	changed := now.Coordinator != s.last.Coordinator || now.Term != s.last.Term
	if changed && now.Term <= s.last.Term {
		t.Fatalf(safety.Violated+"%s leads in term %d after %s in term %d", now.Coordinator, now.Term, s.last.Coordinator, s.last.Term)
	}
	if changed {
		s.tenures++
	}
	s.last = now
	return now
}

func (s *mixture) handOver(t *testing.T) {
	t.Helper()
	before := s.settle(t)
	ctx := testwait.Context(t)
	testwait.NoError(t, func() error { // A member that has just started isn't ready to take over.
		_, err := s.cluster.StepDown(ctx, before.Coordinator, "")
		return err
	})
	if after := s.agree(ctx, t); after.Coordinator == before.Coordinator {
		t.Errorf("%s stepped down in term %d and leads in term %d", before.Coordinator, before.Term, after.Term)
	}
}

func (s *mixture) kill(t *testing.T) {
	t.Helper()
	before := s.settle(t)
	agent := s.cluster.Agent(before.Coordinator)
	if _, err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, agent.AwaitEnd())
	ctx := testwait.Context(t)
	if after := s.agree(ctx, t); after.Coordinator == before.Coordinator {
		t.Errorf("%s was killed and leads", before.Coordinator)
	}
	must.Succeed(t, agent.Start())
	s.settle(t)
}
