package operatorlease

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// interval is the time between two readings of the Lease.
const interval = StaleAfter / 2

// Watch reads the Lease until the context ends. After each reading, it calls observed with since
// when the operator has not shown that it runs, or zero, and with the error of the reading. It isn't known
// if the API server refuses to show the Lease. If it doesn't answer, nothing shows that the operator runs, either.
func Watch(ctx context.Context, read func(context.Context) (*coordinationv1.Lease, error), now func() time.Time,
	observed func(since time.Time, err error),
) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var lease Observer
	for ctx.Err() == nil {
		found, err := readInTime(ctx, read)
		switch {
		case err == nil:
			observed(lease.Observe(found, now()), nil)
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err):
			lease = Observer{}
			observed(time.Time{}, err)
		default:
			observed(lease.silentSince(now()), err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func readInTime(ctx context.Context,
	read func(context.Context) (*coordinationv1.Lease, error),
) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, StaleAfter)
	defer cancel()
	return read(ctx)
}
