package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// roundTripMax is how long a group may take to respond to /healthz. It is less than
	// the default timeout of a kubelet's probe, which then shows the reason.
	roundTripMax = 500 * time.Millisecond
	// checkInterval is the minimum time between checks. Requests in between get the last
	// result, so that many requests don't keep the groups busy.
	checkInterval = 100 * time.Millisecond
)

// health checks that the goroutine of each group makes progress. An agent in which one of
// them is blocked must be restarted: it neither leads nor grants.
type health struct {
	groups Groups

	mu      sync.Mutex
	checked time.Time
	stuck   []string
}

func newHealth(groups Groups) *health { return &health{groups: groups} }

func (h *health) serve(w http.ResponseWriter, r *http.Request) {
	if stuck := h.check(r.Context()); len(stuck) > 0 {
		writeText(w, http.StatusServiceUnavailable, stuck...)
		return
	}
	writeText(w, http.StatusOK, "ok")
}

// check returns one line for each group that doesn't respond. Concurrent requests wait for
// the same check, so it goes on when the first one ends.
func (h *health) check(ctx context.Context) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.checked) < checkInterval {
		return h.stuck
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTripMax)
	defer cancel()
	names := h.groups.Names()
	responded := make([]bool, len(names))
	var checks sync.WaitGroup
	for i, name := range names {
		checks.Go(func() {
			g, ok := h.groups.Find(name)
			// An error before the deadline means that the agent has left the group.
			responded[i] = !ok || g.AwaitRoundTrip(ctx) == nil || ctx.Err() == nil
		})
	}
	checks.Wait()
	h.stuck = nil
	for i, name := range names {
		if !responded[i] {
			h.stuck = append(h.stuck, fmt.Sprintf("group %s: the event loop didn't respond within %s", name, roundTripMax))
		}
	}
	h.checked = time.Now()
	return h.stuck
}
