package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/conclave-dev/conclave/internal/cli/operatorlease"
)

// operatorWatcher observes whether the operator runs: without it, a group that is watched looks
// as if nothing happened.
type operatorWatcher struct {
	// read reads the Lease of the operator. While it fails, nothing is reported.
	read func(context.Context) (*coordinationv1.Lease, error)
	now  func() time.Time
	// onChange receives since when the operator has not shown that it runs, or zero when it does
	// again.
	onChange func(since time.Time)
}

// leaseInterval is the time between two readings of the Lease.
const leaseInterval = 5 * time.Second

// run observes until the context ends.
func (w *operatorWatcher) run(ctx context.Context) {
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	var lease operatorlease.Observer
	silent := false
	for ctx.Err() == nil {
		if found, err := w.read(ctx); err != nil {
			lease = operatorlease.Observer{} // The operator couldn't renew it, either.
		} else if since := lease.Observe(found, w.now()); since.IsZero() == silent {
			silent = !silent
			w.onChange(since)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// operatorText describes what onChange receives.
func operatorText(since, now time.Time) string {
	if since.IsZero() {
		return "the operator runs again"
	}
	return fmt.Sprintf("The operator has not shown that it runs for %s. Elections continue without it, but this status may be outdated. To find the cause, run: kubectl conclave check",
		duration.HumanDuration(now.Sub(since)))
}
