package main

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
)

// groupWatcher reports the current state of a group and each change of it.
type groupWatcher struct {
	client          client.WithWatch
	namespace, name string
	// onChange receives the group, or nil if it doesn't exist.
	onChange func(*v1.ElectionGroup)
	// onConnection receives an error when the API server becomes unreachable, and
	// nil when it is reachable again.
	onConnection func(error)
	// retryInterval is the time between two attempts to reach the API server.
	retryInterval time.Duration

	disconnected bool
}

// run watches until the context ends or the API server denies access.
func (w *groupWatcher) run(ctx context.Context) error {
	watcher := groupwatch.Watcher{Client: w.client, Namespace: w.namespace, Name: w.name, RetryInterval: w.retryInterval, Handler: w}
	return watcher.Run(ctx)
}

// Replace implements groupwatch.Handler, as the other methods do.
func (w *groupWatcher) Replace(groups []v1.ElectionGroup) {
	w.Connected()
	if len(groups) == 0 {
		w.onChange(nil)
		return
	}
	w.onChange(&groups[0])
}

// Set reports the changed group.
func (w *groupWatcher) Set(g *v1.ElectionGroup) { w.onChange(g) }

// Delete reports that the group doesn't exist.
func (w *groupWatcher) Delete(*v1.ElectionGroup) { w.onChange(nil) }

// Connected reports that the API server has responded, if it didn't before.
func (w *groupWatcher) Connected() {
	if w.disconnected {
		w.disconnected = false
		w.onConnection(nil)
	}
}

// Failed reports that the API server is unreachable, once. It ends the watch if access is denied.
func (w *groupWatcher) Failed(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return requestError(err)
	}
	if !w.disconnected {
		w.disconnected = true
		w.onConnection(err)
	}
	return nil
}
