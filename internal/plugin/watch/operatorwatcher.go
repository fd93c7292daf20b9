package watch

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
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

// run observes until the context ends.
func (w *operatorWatcher) run(ctx context.Context) {
	silent := false
	operatorlease.Watch(ctx, w.read, w.now, func(since time.Time, known bool) {
		if known && since.IsZero() == silent {
			silent = !silent
			w.onChange(since)
		}
	})
}

// operatorText describes what onChange receives.
func operatorText(since, now time.Time) string {
	if since.IsZero() {
		return "the operator runs again"
	}
	return clusteraccess.SilenceText("The operator", now.Sub(since))
}
