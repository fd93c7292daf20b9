package dashboard

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
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

	// resourceVersion is that of the last event. If it is empty, the watcher lists the groups.
	resourceVersion string
}

// Run watches until the context ends. It resumes an interrupted watch where it ended.
func (w *Watcher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.watchOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			w.resourceVersion = ""
			continue
		case err != nil:
			w.Store.SetConnection(Connection{State: Lost, Error: w.DescribeError(err).Error()})
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.RetryInterval):
		}
	}
}

// watchOnce makes one watch request and handles its events until it ends. API servers
// end each watch after some minutes.
func (w *Watcher) watchOnce(ctx context.Context) error {
	var list v1.ElectionGroupList
	if w.resourceVersion == "" {
		if err := w.Client.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		w.resourceVersion = list.ResourceVersion
		w.Store.Replace(list.Items)
	}
	events, err := w.Client.Watch(ctx, &list, client.InNamespace(w.Namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: w.resourceVersion, AllowWatchBookmarks: true}})
	if err != nil {
		return err
	}
	defer events.Stop()
	w.Store.SetConnection(Connection{State: Connected})
	for event := range events.ResultChan() {
		if err := w.handle(event); err != nil {
			return err
		}
	}
	return nil
}

func (w *Watcher) handle(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	g, ok := event.Object.(*v1.ElectionGroup)
	if !ok {
		return fmt.Errorf("the API server sent a %T, want an ElectionGroup", event.Object)
	}
	w.resourceVersion = g.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		w.Store.Set(g)
	case watch.Deleted:
		w.Store.Delete(g)
	case watch.Bookmark, watch.Error:
	}
	return nil
}
