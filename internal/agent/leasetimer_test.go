package agent

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestShorterLeaseWaitsForLongerOne restarts agents one by one with a shorter lease, as
// happens when a user edits their files. No other process becomes coordinator before the
// tenure of the coordinator with the longer lease has ended.
func TestShorterLeaseWaitsForLongerOne(t *testing.T) {
	t.Parallel()
	const before, after = 10 * time.Second, 300 * time.Millisecond
	g, listeners := newGroup(t, 3, office.Majority, "StatusTable")
	g.Safety.Lease = before
	dirs, agents := map[string]string{}, map[string]*Agent{}
	for i, m := range g.List.Members {
		dirs[m.Name] = t.TempDir()
		agents[m.Name] = startAgent(t, g, m.Name, uint32(i+1), dirs[m.Name], listeners[m.Name])
	}
	awaitCoordinator(t, agents, "c")
	c, _ := agents["c"].Find("ledger")

	g.Safety.Lease = after
	for i, name := range []string{"a", "b"} {
		agents[name] = restartAgent(t, g, agents[name], uint32(i+4), dirs[name])
	}
	if !c.Leader().Leading {
		t.Fatal("c isn't the coordinator any more: this machine is too slow for the test")
	}
	b, _ := agents["b"].Find("ledger")
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Limit)
	defer cancel()
	for w := b.Watch(""); ; {
		change, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("cannot wait for b to be the coordinator: %v, got %+v", err, b.Leader())
		}
		if change.Leader.Leading {
			break
		}
	}
	if leader := c.Leader(); leader.Leading {
		t.Errorf("b is the coordinator, and c still is for %d ms", *leader.RemainingMillis)
	}

	// The longer lease has expired, so the next start waits for the shorter one.
	for {
		longest, err := agents["b"].options.Store.RecordLease(state.KeyOf(&g), after)
		switch {
		case err != nil:
			t.Fatal(err)
		case longest == after:
			return
		case ctx.Err() != nil:
			t.Fatal("b is the coordinator, but the longer lease is still stored")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// restartAgent closes an agent and starts it again at its address.
func restartAgent(t *testing.T, g config.Group, agent *Agent, life uint32, dir string) *Agent {
	t.Helper()
	self := agent.Config().Self
	agent.Close(t.Context())
	if err := agent.options.Store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range g.List.Members {
		if m.Name != self {
			continue
		}
		listener, err := transport.Listen(t.Context(), m.Address)
		if err != nil {
			t.Fatal(err)
		}
		return startAgent(t, g, self, life, dir, listener)
	}
	t.Fatalf("cannot find member %s", self)
	return nil
}
