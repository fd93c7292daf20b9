// Package operatorlease finds out whether the operator runs. A status that nobody updates
// looks like one that doesn't change. But the leader of the operator renews a Lease every
// two seconds.
//
// # What is not guaranteed
//
// A leader that renews its Lease may still be unable to reach agents.
package operatorlease

import (
	"context"
	"reflect"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Name is the name of the Lease, in the namespace of the operator.
const Name = "conclave-manager"

// unrenewedMax is how long a Lease may remain the same. It is more than it takes another
// replica to lead after one has crashed: 15 s for the Lease to expire, and 2 s to notice that.
const unrenewedMax = 20 * time.Second

// Read reads the Lease of the operator in a namespace.
func Read(ctx context.Context, c client.Reader, namespace string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: Name}, lease); err != nil {
		return nil, err
	}
	return lease, nil
}

// Observer observes whether the Lease is renewed. It compares a Lease with the one before.
// So only the first one depends on the clocks of two machines.
type Observer struct {
	last  *coordinationv1.LeaseSpec
	since time.Time
}

// Observe returns since when no replica of the operator renews the Lease, or zero.
func (o *Observer) Observe(lease *coordinationv1.Lease, now time.Time) time.Time {
	first := o.last == nil
	if first || !reflect.DeepEqual(o.last, &lease.Spec) {
		o.last, o.since = lease.Spec.DeepCopy(), now
		if renewed := lease.Spec.RenewTime; first && renewed != nil && now.Sub(renewed.Time) > unrenewedMax {
			o.since = renewed.Time
		}
	}
	if now.Sub(o.since) > unrenewedMax {
		return o.since
	}
	return time.Time{}
}
