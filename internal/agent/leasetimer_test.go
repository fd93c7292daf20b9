package agent

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// TestShorterLeaseWaitsForTheLongerOne: agents are restarted one by one with a
// shorter lease, as somebody who edits files may do. Nobody leads before the one
// that goes by the longer lease has stopped.
func TestShorterLeaseWaitsForTheLongerOne(t *testing.T) {
	t.Parallel()
	const before, after = 4 * time.Second, 300 * time.Millisecond
	of, listeners := newGroup(t, 3, office.Majority, "StatusTable")
	of.Safety.Lease = before
	dirs, agents := map[string]string{}, map[string]*Agent{}
	for i, m := range of.List.Members {
		dirs[m.Name] = t.TempDir()
		agents[m.Name] = startAgent(t, of, m.Name, uint32(i+1), dirs[m.Name], listeners[m.Name])
	}
	awaitCoordinator(t, agents, "c")
	c, _ := agents["c"].Find("ledger")

	of.Safety.Lease = after
	for i, name := range []string{"a", "b"} {
		agents[name] = restartAgent(t, of, agents[name], uint32(i+4), dirs[name])
	}
	if !c.Leader().Leading {
		t.Fatal("c doesn't lead any more before anything can be seen: this machine is too slow for the test")
	}
	b, _ := agents["b"].Find("ledger")
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for w := b.Watch(""); ; {
		change, err := w.Next(soon)
		if err != nil {
			t.Fatalf("b waits to lead: %v, %+v", err, b.Leader())
		}
		if change.Leader.Leading {
			break
		}
	}
	if leader := c.Leader(); leader.Leading {
		t.Errorf("b leads, and c does for %d ms more", *leader.RemainingMillis)
	}

	// The longer lease is over, so that the next start waits for the shorter one.
	for {
		longest, err := agents["b"].options.Store.RecordLease(state.KeyOf(&of), after)
		switch {
		case err != nil:
			t.Fatal(err)
		case longest == after:
			return
		case soon.Err() != nil:
			t.Fatal("b leads, and still keeps the longer lease")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// restart ends an agent, and starts its next life where it was.
func restartAgent(t *testing.T, of config.Group, agent *Agent, life uint32, dir string) *Agent {
	t.Helper()
	self := agent.Config().Self
	agent.Close(t.Context())
	if err := agent.options.Store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range of.List.Members {
		if m.Name != self {
			continue
		}
		listener, err := transport.Listen(t.Context(), m.Address)
		if err != nil {
			t.Fatal(err)
		}
		return startAgent(t, of, self, life, dir, listener)
	}
	t.Fatalf("%s isn't a member", self)
	return nil
}
