package agent

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestOutSince: an agent counts the time for which it grants nothing from when it locked its
// store. When it leaves a group, or joins it again with other settings, it may have granted
// just before.
func TestOutSince(t *testing.T) {
	t.Parallel()
	agents := startAgents(t, 1, office.Majority, "StatusTable")
	a := agents["a"]
	now := func() election.Tick { return a.options.Clock.Now() }
	if got := a.outSince(); got > 0 {
		t.Errorf("got tick %d, want one before the clock's first: the store was locked before", got)
	}
	before := now()
	g := a.Config().Groups[0]
	apply(t, a, func(g *config.Group) { g.Algorithm = "Bully" })
	rejoined := a.outSince()
	expect.AtLeastf(t, rejoined, before, "tick after the agent joined the group again")
	before = now()
	must.Succeed(t, a.LeaveGroup(t.Context(), g.Name))
	expect.AtLeastf(t, a.outSince(), before, "tick after the agent left the group")
}

// TestJoinAgainInHigherTerm: an agent that leaves a group and joins it again has the same
// incarnation. A message about a claim of its first participation, which names the incarnation
// and the term, must not count for one of the second.
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
	if got := a.claimed(&settings); got < first {
		t.Errorf("got %d as the highest claimed term after a tenure in term %d", got, first)
	}
	given := (first.Epoch() + 100).Last() // up to which it gave claims up: two seconds later
	a.mu.Lock()
	a.claims[settings.Name] = claim{settings.UID, given}
	a.mu.Unlock()
	prepared, err := a.PrepareGroup(settings, nil)
	must.Succeed(t, err)
	must.Succeed(t, a.ApplyGroup(t.Context(), prepared))
	if second := lead(); second <= given {
		t.Errorf("got a tenure in term %d after claims up to %d, want a higher term", second, given)
	}
}
