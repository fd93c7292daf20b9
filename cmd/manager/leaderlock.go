package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// newLeaderLock returns the Lease by which the replicas elect their leader. Its holder is the pod. So a leader that
// restarts leads again at once: it need not wait until the Lease of the process before it has expired. That process has
// ended, because kubelet starts a container only when the last one has ended. Outside of a cluster, it is the process.
func (m *manager) newLeaderLock() (*resourcelock.LeaseLock, error) {
	config := rest.AddUserAgent(rest.CopyConfig(m.config), "leader-election")
	config.Timeout = renewDeadline / 2 // Another request must fit in after one that got no response.
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for the Lease: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: leaseName}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: cmp.Or(m.podName, string(uuid.NewUUID()))},
	}, nil
}

const (
	leaseDuration = 15 * time.Second
	// renewDeadline is how long the leader tries to renew its Lease before it becomes a standby.
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	// probePeriod is how often a replica that has lost its Lease asks whether the API server responds again.
	probePeriod = 500 * time.Millisecond
)

// elector elects the replica that leads. One that loses its Lease, because the API server is slow, becomes a standby,
// and keeps its connections to agents: if the process ended, all agents would connect to the next leader anew.
type elector struct {
	lock resourcelock.Interface
	set  func(leads bool)
	log  *slog.Logger
}

// Start runs elections until the context ends. It implements manager.Runnable.
func (e *elector) Start(ctx context.Context) error {
	for {
		ended := make(chan struct{})
		run, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: e.lock, Name: leaseName,
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(tenure context.Context) {
					defer close(ended)
					e.set(true)
					<-tenure.Done()
					e.set(false)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("elect the leader: %w", err)
		}
		run.Run(ctx)
		if ctx.Err() != nil {
			return e.release(context.WithoutCancel(ctx), run.IsLeader())
		}
		<-ended
		e.log.Warn("the leader could not renew its Lease; it is a standby now")
		for pause(ctx, probePeriod) == nil {
			if _, _, err := e.lock.Get(ctx); err == nil || apierrors.IsNotFound(err) {
				break
			}
		}
	}
}

// release gives the Lease back when the process ends, so that another replica need not wait until it expires.
func (e *elector) release(ctx context.Context, leads bool) error {
	if !leads {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, renewDeadline/2)
	defer cancel()
	record, _, err := e.lock.Get(ctx)
	if err == nil && record.HolderIdentity == e.lock.Identity() {
		now := metav1.Now()
		err = e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	}
	if err != nil {
		e.log.Warn("cannot release the Lease", "error", err)
	}
	return nil
}
