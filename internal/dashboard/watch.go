package dashboard

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
)

// Watcher keeps a store up to date with the groups of a cluster.
type Watcher struct {
	Client client.WithWatch
	Store  *Store
	// Namespace is that of the groups to watch, or "" for all.
	Namespace string
	// RetryInterval is the time between two attempts to reach the API server.
	RetryInterval time.Duration
	// DescribeError describes in one line why a request failed.
	DescribeError func(error) error
}

// Run watches until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	groups := groupwatch.Watcher{
		Client: w.Client, Namespace: w.Namespace, RetryInterval: w.RetryInterval, Handler: handler{w.Store, w.DescribeError},
	}
	_ = groups.Run(ctx) // The handler ends it with no error.
}

// handler stores the groups and the state of the connection.
type handler struct {
	*Store

	describeError func(error) error
}

func (h handler) Connected() { h.SetConnection(Connection{State: Connected}) }

func (h handler) Failed(err error) error {
	h.SetConnection(Connection{State: Lost, Error: h.describeError(err).Error()})
	return nil
}
