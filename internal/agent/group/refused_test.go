package group

import (
	"testing"
	"testing/synctest"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

// TestRefusedCoordinatorIsSuspected: an agent doesn't wait until a coordinator is silent whose address refuses
// connections. Of any other process, that changes nothing.
func TestRefusedCoordinatorIsSuspected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, map[string]int{"a": 1, "b": 2, "c": 3}, func(*config.Group) {})
		c.awaitFollowers("c", "a", "b")
		c.isolate("c")
		a := c.group("a")
		for _, step := range []struct{ refused, coordinator string }{{"b", "c"}, {"a", "c"}, {"c", ""}} {
			a.PeerRefused(step.refused)
			synctest.Wait()
			if got := a.Leader().Coordinator; got != step.coordinator {
				t.Errorf("after %s has refused: a follows %q, want %q", step.refused, got, step.coordinator)
			}
		}
	})
}
