package agent

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/memory"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// startRememberingAgent starts an agent that remembers its grants, with its state in dir.
func startRememberingAgent(t *testing.T, g config.Group, self string, life uint32, dir string,
	listener net.Listener,
) *Agent {
	t.Helper()
	options := testOptions(t, life, dir, listener)
	remembered, err := OpenMemory(dir, options.Log)
	if err != nil || remembered == nil {
		t.Fatal(remembered, err)
	}
	folder, err := os.Readlink(filepath.Join(dir, "memory"))
	must.Succeed(t, err)
	t.Cleanup(func() {
		remembered.Close()
		_ = os.RemoveAll(folder)
	})
	options.Memory = remembered
	return startWith(t, self, options, g)
}

// apply switches an agent to a group's new settings.
func apply(t *testing.T, a *Agent, change func(*config.Group)) {
	t.Helper()
	next := a.Config().Groups[0]
	change(&next)
	prepared, err := a.StoreGroup(next, nil)
	if err == nil {
		err = a.ApplyGroup(t.Context(), prepared)
	}
	must.Succeed(t, err)
}

// TestAgentsThatJoinAgainRemember: they leave the group, and join it with other settings. If
// they had forgotten what they have granted, there would be no coordinator for an hour.
func TestAgentsThatJoinAgainRemember(t *testing.T) {
	for _, mode := range []office.Mode{office.Majority, office.Strict} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			g, listeners := newGroup(t, 3, mode, "StatusTable")
			agents := map[string]*Agent{}
			for i, m := range g.List.Members {
				agents[m.Name] = startRememberingAgent(t, g, m.Name, uint32(i+1), t.TempDir(), listeners[m.Name])
			}
			awaitCoordinator(t, agents, "c")
			for _, a := range agents { // New agents remember nothing, and wait for the short lease.
				apply(t, a, func(g *config.Group) { g.Safety.Lease = time.Hour })
			}
			for _, name := range []string{"a", "b", "c"} {
				apply(t, agents[name], func(g *config.Group) { g.Session = true })
				apply(t, agents[name], func(g *config.Group) { g.Session = false })
			}
			awaitCoordinator(t, agents, "c")
		})
	}
}

// TestAvailableForgetsGrants: what an agent granted before doesn't tell which terms the group has used in this mode.
func TestAvailableForgetsGrants(t *testing.T) {
	t.Parallel()
	g, listeners := newGroup(t, 1, office.Majority, "StatusTable")
	a := startRememberingAgent(t, g, "a", 1, t.TempDir(), listeners["a"])
	awaitCoordinator(t, map[string]*Agent{"a": a}, "a")
	for _, mode := range []office.Mode{office.Majority, office.Available} {
		apply(t, a, func(g *config.Group) { g.Safety.Mode = mode })
		file, granted, _, err := a.options.Memory.Open(memory.Owner{Domain: a.Config().Domain, Member: "a", Group: "ledger"})
		must.Succeed(t, err)
		file.Close()
		expect.Equalf(t, granted != nil, mode == office.Majority, "%s: remembers grants", mode)
	}
}

// TestMemoryMustBeInvalidated: an agent that can neither use nor remove a memory doesn't join,
// because the next process could use that.
func TestMemoryMustBeInvalidated(t *testing.T) {
	t.Parallel()
	g, listeners := newGroup(t, 1, office.Majority, "StatusTable")
	dir := t.TempDir()
	options := testOptions(t, 1, dir, listeners["a"])
	defer options.Store.Close()
	remembered, _, err := memory.Open(dir)
	must.Succeed(t, err)
	defer remembered.Close()
	folder, err := os.Readlink(filepath.Join(dir, "memory"))
	must.Succeed(t, err)
	defer os.RemoveAll(folder)
	must.Succeed(t, os.MkdirAll(filepath.Join(folder, "ledger.grants", "x"), 0o700))
	options.Memory = remembered
	_, err = New(t.Context(), &config.Config{Self: "a", Domain: "default", Groups: []config.Group{g}}, options)
	expect.ErrorContainsf(t, err, "cannot invalidate what the agent remembered of its grants in group ledger",
		"the memory can't be invalidated")
}

// TestAgentIsReadyWhenItVotes: a new agent waits for a lease.
func TestAgentIsReadyWhenItVotes(t *testing.T) {
	t.Parallel()
	g, listeners := newGroup(t, 1, office.Majority, "StatusTable")
	agent := startAgent(t, g, "a", 1, t.TempDir(), listeners["a"])
	voting := func() bool {
		own, _ := agent.Problems()
		return len(own) == 0
	}
	if ledger, _ := agent.Find("ledger"); voting() && ledger.Leader().Coordinator == "" {
		t.Error("got no problem right after the start, want one")
	}
	testwait.Until(t, "the agent is ready", voting)
	if ledger, _ := agent.Find("ledger"); !ledger.Joined() {
		t.Error("got an agent that is ready, and a group that it has not joined")
	}
}

// TestOutSince: an agent counts the time for which it grants nothing from when it locked its store. When it leaves a
// group, or joins it again with other settings, it may have granted just before.
func TestOutSince(t *testing.T) {
	t.Parallel()
	agents := startAgents(t, 1, office.Majority, "StatusTable")
	a := agents["a"]
	now := func() election.Tick { return a.options.Clock.Now() }
	expect.AtMostf(t, a.outSince(), 0, "tick since which the agent is out (the store was locked before the clock began)")
	before := now()
	g := a.Config().Groups[0]
	apply(t, a, func(g *config.Group) { g.Algorithm = "Bully" })
	rejoined := a.outSince()
	expect.AtLeastf(t, rejoined, before, "tick after the agent joined the group again")
	before = now()
	must.Succeed(t, a.LeaveGroup(t.Context(), g.Name))
	expect.AtLeastf(t, a.outSince(), before, "tick after the agent left the group")
}

// TestJoinAgainInHigherTerm: an agent that leaves a group and joins it again has the same incarnation. A message about
// a claim of its first participation, which names the incarnation and the term, must not count for one of the second.
func TestJoinAgainInHigherTerm(t *testing.T) {
	t.Parallel()
	agents := startAgents(t, 1, office.Majority, "StatusTable")
	a := agents["a"]
	settings := a.Config().Groups[0]
	lead := func() election.Term {
		t.Helper()
		var l group.Leader
		testwait.Until(t, "a leads", func() bool {
			g, ok := a.Find(settings.Name)
			if ok {
				l = g.Leader()
			}
			return ok && l.Coordinator == "a"
		})
		return election.Term(l.Term)
	}
	first := lead()
	must.Succeed(t, a.LeaveGroup(t.Context(), settings.Name))
	expect.AtLeastf(t, a.claimed(&settings), first, "highest claimed term after a tenure")
	given := first + 10 // up to which it gave claims up
	a.mu.Lock()
	a.claims[settings.Name] = claim{settings.UID, given}
	a.mu.Unlock()
	prepared, err := a.StoreGroup(settings, nil)
	must.Succeed(t, err)
	must.Succeed(t, a.ApplyGroup(t.Context(), prepared))
	expect.AtLeastf(t, lead(), given+1, "term of the tenure after claims up to %d", given)
}
