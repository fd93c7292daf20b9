package sim

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election/catalog"
)

func TestTryExplore(t *testing.T) {
	for _, n := range []int{3, 4} {
		for _, name := range catalog.Names() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			start := time.Now()
			x, err := Explore(ctx, Exploration{Algorithm: name, Processes: n, Crashes: 2, Restarts: 1, StatesMax: 3000000})
			cancel()
			t.Logf("%s n=%d %d states %d transitions %d ends complete=%t %v %v %v", name, n, x.States, x.Transitions, x.Ends, x.Complete, time.Since(start), x.Violation, err)
			for _, p := range x.Path {
				t.Log("   ", p)
			}
		}
	}
}
