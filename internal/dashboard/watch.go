package dashboard

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// retryInterval is the time between two attempts to reach the API server.
const retryInterval = time.Second

// Watch keeps the store up to date with the groups of a namespace, or of all if it is empty, until the context ends.
func (s *Store) Watch(ctx context.Context, c client.WithWatch, namespace string) {
	groups := groupwatch.Watcher{Client: c, Namespace: namespace, RetryInterval: retryInterval, Handler: handler{s}}
	_ = groups.Run(ctx) // The handler ends it with no error.
}

// WatchOperator keeps in the store whether the operator runs until the context ends: without it, each page looks as if
// nothing happened. While its Lease can't be read, it is unknown whether the operator runs, for example because the
// user may not read it. Then the pages say nothing.
func (s *Store) WatchOperator(ctx context.Context, c client.Client) {
	observed := func(since time.Time, _ error) { s.SetSilentSince(since) }
	operatorlease.Watch(ctx, clusteraccess.LeaseReader(c), s.Now, observed)
}

// handler stores the groups and the state of the connection.
type handler struct{ *Store }

func (h handler) Connected() { h.SetConnection(Connection{State: Connected}) }

func (h handler) Failed(err error) error {
	h.SetConnection(Connection{State: Lost, Error: clusteraccess.RequestError(err).Error()})
	return nil
}
