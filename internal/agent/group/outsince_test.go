package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// TestMemberThatWasOutForLeaseGrantsAtOnce: what its earlier incarnations granted has expired,
// although it joins only now. Otherwise the members would wait for an hour.
func TestMemberThatWasOutForLeaseGrantsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Hour
		cluster := &cluster{t: t, groups: map[string]*Group{}, lives: map[string]uint32{}, cut: map[string]bool{}, outFor: lease}
		settings := testSettings()
		settings.Safety.Lease = lease
		settings.List.Members = []control.Member{
			{Name: "a", Priority: 10, Address: "a:1"}, {Name: "b", Priority: 20, Address: "b:1"}, {Name: "c", Priority: 30, Address: "c:1"},
		}
		for i, m := range settings.List.Members {
			cluster.join(m.Name, uint32(i+1), settings)
		}
		waitFor(t, cluster.group("c"), "c leads", isLeading)
	})
}
