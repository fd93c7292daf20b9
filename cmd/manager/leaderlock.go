package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// newLeaderLock returns the Lease by which the replicas elect their leader. Its holder is the pod. So a leader that
// restarts, for example after it couldn't reach the API server, leads again at once: it need not wait until the Lease
// of the process before it has expired. That process has ended, because kubelet starts a container only when the last
// one has ended.
//
// It returns nil if the pod's name isn't known. Then the holder is the process.
func (m *manager) newLeaderLock() (*resourcelock.LeaseLock, error) {
	if m.podName == "" {
		return nil, nil //nolint:nilnil // controller-runtime creates one.
	}
	config := rest.AddUserAgent(rest.CopyConfig(m.config), "leader-election")
	config.Timeout = renewDeadline / 2 // Another request must fit in after one that got no response.
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for the Lease: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: m.namespace, Name: leaseName},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: m.podName},
	}, nil
}
