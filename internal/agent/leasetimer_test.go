package agent

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestShorterLeaseWaitsForLongerOne restarts agents one by one with a shorter lease, as happens when a user edits their
// files. They grant nothing before the grants of the longer lease have expired: there is no next tenure before.
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
	first := c.Leader().Term

	g.Safety.Lease = after
	restarted := time.Now()
	for i, name := range []string{"a", "b"} {
		agents[name] = restartAgent(t, g, agents[name], uint32(i+4), dirs[name])
	}
	if !c.Leader().Leading {
		t.Fatal("c isn't the coordinator any more: this machine is too slow for the test")
	}
	ctx := testwait.Context(t)
	for w := c.Watch(); ; {
		change, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("cannot wait for the next tenure: %v, got %+v", err, c.Leader())
		}
		if change.Coordinator != "" && change.Term > first {
			break
		}
	}
	if waited := time.Since(restarted); waited < before {
		t.Errorf("got the next tenure %s after a and b were restarted, want it after the lease of %s at the earliest",
			waited, before)
	}

	// The longer lease has expired, so the next start waits for the shorter one.
	testwait.Until(t, "the shorter lease is stored", func() bool {
		return storedLease(t, agents["b"].options.Store) == after
	})
}

func storedLease(t *testing.T, s *state.Store) time.Duration {
	t.Helper()
	r, err := s.Load("ledger")
	must.Succeed(t, err)
	return r.Lease
}

// TestReloadWithAnotherLease: a longer lease is stored before it is used, and a shorter one
// when the grants for the longer one have expired. The coordinator continues in its term.
func TestReloadWithAnotherLease(t *testing.T) {
	t.Parallel()
	agents := startAgents(t, 3, office.Majority, "StatusTable", steady)
	awaitCoordinator(t, agents, "c")
	c, _ := agents["c"].Find("ledger")
	term := c.Leader().Term
	stored := func() time.Duration { return storedLease(t, agents["a"].options.Store) }
	steadyLease := agents["a"].Config().Groups[0].Safety.Lease
	for _, lease := range []time.Duration{steadyLease + time.Second, steadyLease} {
		for _, a := range agents {
			next := *a.Config()
			next.Groups = []config.Group{next.Groups[0]}
			next.Groups[0].Safety.Lease = lease
			must.Succeed(t, a.Reload(t.Context(), &next))
		}
		expect.Equalf(t, stored(), steadyLease+time.Second, "stored lease after a change to %s", lease)
	}
	testwait.Until(t, "the longer lease has expired", func() bool { return stored() == steadyLease })
	if l := c.Leader(); !l.Leading || l.Term != term {
		t.Errorf("got %+v, want c in term %d", l, term)
	}
}

// TestBlockedGroupKeepsLongerLease: a group that is blocked still grants for its former,
// longer lease, so the time of that one begins when the group has switched.
func TestBlockedGroupKeepsLongerLease(t *testing.T) {
	t.Parallel()
	const before, after = 600 * time.Millisecond, 300 * time.Millisecond
	g, listeners := newGroup(t, 2, office.Available, "StatusTable")
	steady(&g)
	g.Safety.Lease = before
	options := testOptions(t, 2, t.TempDir(), listeners["b"])
	block := blockInReport(t, &options, g.Name)
	a := startWith(t, "b", options, g)
	awaitCoordinator(t, map[string]*Agent{"b": a}, "b")
	unblock := block(a)
	defer unblock()

	next := g
	next.Safety.Lease = after
	prepared, err := a.StoreGroup(next, nil)
	must.Succeed(t, err)
	applied := make(chan error, 1)
	go func() { applied <- a.ApplyGroup(t.Context(), prepared) }()
	stored := func() time.Duration { return storedLease(t, options.Store) }
	for end := time.Now().Add(2 * before); time.Now().Before(end); time.Sleep(before / 10) {
		must.Equalf(t, stored(), before, "lease of stored while the group is blocked")
	}
	unblock()
	must.Succeed(t, testwait.Receive(t, "the new settings", applied))
	testwait.Until(t, "the longer lease has expired", func() bool { return stored() == after })
}

// restartAgent closes an agent and starts it again at its address.
func restartAgent(t *testing.T, g config.Group, agent *Agent, life uint32, dir string) *Agent {
	t.Helper()
	self := agent.Config().Self
	agent.Close(t.Context())
	must.Succeed(t, agent.options.Store.Close())
	for _, m := range g.List.Members {
		if m.Name != self {
			continue
		}
		listener, err := transport.Listen(t.Context(), m.Address)
		must.Succeed(t, err)
		return startAgent(t, g, self, life, dir, listener)
	}
	t.Fatalf("cannot find member %s", self)
	return nil
}
