package operatorlease

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// interval is the time between two readings of the Lease.
const interval = 5 * time.Second

// Watch reads the Lease until the context ends. After each reading, it calls observed with since
// when the operator has not shown that it runs, or zero. It isn't known if the Lease couldn't be
// read: the operator couldn't renew it, either, so silence counts from the next reading.
func Watch(ctx context.Context, read func(context.Context) (*coordinationv1.Lease, error), now func() time.Time, observed func(since time.Time, known bool)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var lease Observer
	for ctx.Err() == nil {
		if found, err := read(ctx); err != nil {
			lease = Observer{}
			observed(time.Time{}, false)
		} else {
			observed(lease.Observe(found, now()), true)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
