// Package operatorlease finds out whether the operator runs. A status that nobody updates looks like one that doesn't
// change. But the leader of the operator renews a Lease every two seconds.
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

// StaleAfter is the age from which a status counts as stale, wherever it is shown: nothing has
// confirmed for this time that it is current. The leader renews its Lease more than twice meanwhile.
const StaleAfter = 5 * time.Second

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
		if renewed := lease.Spec.RenewTime; first && renewed != nil && now.Sub(renewed.Time) > StaleAfter {
			o.since = renewed.Time
		}
	}
	return o.silentSince(now)
}

// silentSince returns the same without a new reading.
func (o *Observer) silentSince(now time.Time) time.Time {
	if o.last == nil || now.Sub(o.since) <= StaleAfter {
		return time.Time{}
	}
	return o.since
}
