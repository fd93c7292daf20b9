package controllerruntime

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// leaseOf returns the Lease of a manager with these options.
func (e *Election) leaseOf(options manager.Options) (*leaderelection.LeaderElectionConfig, error) {
	if options.LeaderElectionID == "" {
		return nil, errors.New("set LeaderElectionID to the name of the Lease")
	}
	namespace := options.LeaderElectionNamespace
	if namespace == "" {
		text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil {
			return nil, fmt.Errorf("set LeaderElectionNamespace to that of the Lease: %w", err)
		}
		namespace = string(text)
	}
	config := &leaderelection.LeaderElectionConfig{
		LeaseDuration: or(options.LeaseDuration, 15*time.Second),
		RenewDeadline: or(options.RenewDeadline, 10*time.Second),
		RetryPeriod:   or(options.RetryPeriod, 2*time.Second),
	}
	var err error
	config.Lock, err = resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace,
		options.LeaderElectionID, resourcelock.ResourceLockConfig{Identity: e.identity}, e.api, config.RenewDeadline)
	return config, err
}

// or returns the default of controller-runtime for a duration that isn't set.
func or(set *time.Duration, standard time.Duration) time.Duration {
	if set == nil {
		return standard
	}
	return *set
}
