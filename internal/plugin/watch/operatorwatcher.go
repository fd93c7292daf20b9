package watch

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// operatorWatcher observes whether the operator runs: without it, a group that is watched looks
// as if nothing happened.
type operatorWatcher struct {
	// read reads the Lease of the operator. While it fails, nothing is reported about the operator.
	read func(context.Context) (*coordinationv1.Lease, error)
	now  func() time.Time
	// onChange receives since when the operator has not shown that it runs, or zero when it does
	// again.
	onChange func(since time.Time)
	// onConnection is that of the GroupWatcher, which doesn't notice that the API server hangs.
	onConnection func(error)
}

var errNoResponse = errors.New("the API server does not respond")

// run observes until the context ends.
func (w *operatorWatcher) run(ctx context.Context) {
	silent, hung := false, false
	operatorlease.Watch(ctx, w.read, w.now, func(since time.Time, err error) {
		hangs := errors.Is(err, context.DeadlineExceeded)
		if hangs && !hung {
			w.onConnection(errNoResponse)
		} else if hung && !hangs {
			w.onConnection(nil)
		}
		hung = hangs
		if err == nil && since.IsZero() == silent {
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
