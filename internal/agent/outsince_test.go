package agent

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
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
	g.Algorithm = "Bully"
	prepared, err := a.PrepareGroup(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ApplyGroup(t.Context(), prepared); err != nil {
		t.Fatal(err)
	}
	rejoined := a.outSince()
	if rejoined < before {
		t.Errorf("got tick %d after the agent joined the group again, want at least %d", rejoined, before)
	}
	before = now()
	if err := a.LeaveGroup(t.Context(), g.Name); err != nil {
		t.Fatal(err)
	}
	if left := a.outSince(); left < before {
		t.Errorf("got tick %d after the agent left the group, want at least %d", left, before)
	}
}
