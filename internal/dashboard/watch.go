package dashboard

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/conclave-dev/conclave/internal/clusteraccess/groupwatch"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// Watch keeps the store up to date with the groups of a watcher until the context ends. describeError describes in one line why a
// request failed.
func (s *Store) Watch(ctx context.Context, groups groupwatch.Watcher, describeError func(error) error) {
	groups.Handler = handler{s, describeError}
	_ = groups.Run(ctx) // The handler ends it with no error.
}

// WatchOperator keeps in the store whether the operator runs until the context ends: without it, each page looks as if nothing
// happened. read reads the Lease of the operator. While it fails, it is unknown whether the operator runs, for example because the user
// may not read the Lease. Then the pages say nothing.
func (s *Store) WatchOperator(ctx context.Context, read func(context.Context) (*coordinationv1.Lease, error)) {
	operatorlease.Watch(ctx, read, s.Now, func(since time.Time, _ error) { s.SetSilentSince(since) })
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
