package dashboard

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// OperatorWatcher keeps in a store whether the operator runs: without it, each page looks as
// if nothing happened.
type OperatorWatcher struct {
	Store *Store
	// Read reads the Lease of the operator. While it fails, it is unknown whether the operator
	// runs, for example because the user may not read the Lease. Then the pages say nothing.
	Read func(context.Context) (*coordinationv1.Lease, error)
}

// Run reads the Lease until the context ends.
func (w *OperatorWatcher) Run(ctx context.Context) {
	operatorlease.Watch(ctx, w.Read, w.Store.Now, func(since time.Time, _ bool) { w.Store.SetSilentSince(since) })
}
