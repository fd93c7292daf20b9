package watch

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
)

// GroupWatcher reports the current state of a group and each change of it.
type GroupWatcher struct {
	Client          client.WithWatch
	Namespace, Name string
	// OnChange receives the group, or nil if it doesn't exist.
	OnChange func(*v1.ElectionGroup)
	// OnConnection receives an error when the API server becomes unreachable, and
	// nil when it is reachable again.
	OnConnection func(error)
	// RetryInterval is the time between two attempts to reach the API server.
	RetryInterval time.Duration

	disconnected bool
}

// Run watches until the context ends or the API server denies access.
func (w *GroupWatcher) Run(ctx context.Context) error {
	watcher := groupwatch.Watcher{Client: w.Client, Namespace: w.Namespace, Name: w.Name, RetryInterval: w.RetryInterval, Handler: w}
	return watcher.Run(ctx)
}

// Replace implements groupwatch.Handler, as the other methods do.
func (w *GroupWatcher) Replace(groups []v1.ElectionGroup) {
	w.Connected()
	if len(groups) == 0 {
		w.OnChange(nil)
		return
	}
	w.OnChange(&groups[0])
}

// Set reports the changed group.
func (w *GroupWatcher) Set(g *v1.ElectionGroup) { w.OnChange(g) }

// Delete reports that the group doesn't exist.
func (w *GroupWatcher) Delete(*v1.ElectionGroup) { w.OnChange(nil) }

// Connected reports that the API server has responded, if it didn't before.
func (w *GroupWatcher) Connected() {
	if w.disconnected {
		w.disconnected = false
		w.OnConnection(nil)
	}
}

// Failed reports that the API server is unreachable, once. It ends the watch if access is denied.
func (w *GroupWatcher) Failed(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return clusteraccess.RequestError(err)
	}
	if !w.disconnected {
		w.disconnected = true
		w.OnConnection(err)
	}
	return nil
}
