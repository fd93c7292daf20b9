package live

import (
	"context"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Two runs on one group would disturb each other: each would count the failovers, and the violations,
// that the other one causes. So a run holds a Lease while it lasts.

const (
	// lockDuration is how long the Lease of a run that was killed keeps others out.
	lockDuration = time.Minute
	lockInterval = lockDuration / 6
)

func (r *Run) lockName() string { return "conclave-chaos-" + r.Subject.key() }

// Lock keeps other runs off the group until unlock is called. It returns an error if one is under way.
// Without the permission for Leases, it only says so.
func (r *Run) Lock(ctx context.Context) (unlock func(), err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	holder := fmt.Sprintf("%s_%s", host, uuid.NewUUID())
	lease := r.newLease(holder)
	switch err = r.Client.Create(ctx, lease); {
	case apierrors.IsForbidden(err):
		r.Printf("Make sure that no other chaos test of %s runs: to check that, you need the permission to create, get, update and delete leases in namespace %s.", r.Subject, r.Subject.namespace())
		return func() {}, nil
	case apierrors.IsAlreadyExists(err):
		if lease, err = r.takeOver(ctx, holder); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("create Lease %s: %w", r.lockName(), err)
	}
	renewing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.renew(renewing, lease)
	}()
	return func() {
		cancel()
		<-ended
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockInterval)
		defer cancel()
		// If it fails, the Lease expires.
		_ = r.Client.Delete(deleting, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
	}, nil
}

func (r *Run) newLease(holder string) *coordinationv1.Lease {
	now := metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: r.lockName(), Namespace: r.Subject.namespace()},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: new(int32(lockDuration / time.Second)),
		},
	}
}

// takeOver takes the Lease of a run that was killed.
func (r *Run) takeOver(ctx context.Context, holder string) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Subject.namespace(), Name: r.lockName()}, &lease); err != nil {
		return nil, fmt.Errorf("read Lease %s: %w", r.lockName(), err)
	}
	spec := &lease.Spec
	if spec.RenewTime != nil && time.Since(spec.RenewTime.Time) < lockDuration {
		by := ""
		if spec.HolderIdentity != nil {
			by = " by " + *spec.HolderIdentity
		}
		return nil, fmt.Errorf("another chaos test of %s is under way%s: wait until it has ended. If it was killed, try again in a minute, or run: kubectl delete lease %s -n %s",
			r.Subject, by, r.lockName(), r.Subject.namespace())
	}
	lease.Spec = r.newLease(holder).Spec
	if err := r.Client.Update(ctx, &lease); err != nil {
		return nil, fmt.Errorf("update Lease %s: %w", r.lockName(), err)
	}
	return &lease, nil
}

// renew renews the Lease until the context ends. A fault may keep it from that for a while.
func (r *Run) renew(ctx context.Context, lease *coordinationv1.Lease) {
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		next := lease.DeepCopy()
		next.Spec.RenewTime = new(metav1.NowMicro())
		if r.Client.Update(ctx, next) == nil {
			*lease = *next
		}
	}
}
