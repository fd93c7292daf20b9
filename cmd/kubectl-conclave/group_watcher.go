package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
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

	// resourceVersion is that of the last event. If it is empty, the watcher lists
	// the group before it watches.
	resourceVersion string
	disconnected    bool
}

// run watches until the context ends or the API server denies access. It resumes
// an interrupted watch at the last resource version. If the API server no longer
// retains that version, it lists the group again.
func (w *groupWatcher) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := w.watchOnce(ctx)
		switch {
		case ctx.Err() != nil:
			continue // An error after cancellation is not a failure.
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return requestError(err)
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			w.resourceVersion = ""
			continue
		case err == nil:
			// API servers end each watch after some minutes.
		case !w.disconnected:
			w.disconnected = true
			w.onConnection(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.retryInterval):
		}
	}
	return nil
}

// watchOnce makes one watch request and handles its events until it ends.
func (w *groupWatcher) watchOnce(ctx context.Context) error {
	var list v1.ElectionGroupList
	byName := client.MatchingFields{"metadata.name": w.name}
	if w.resourceVersion == "" {
		if err := w.client.List(ctx, &list, client.InNamespace(w.namespace), byName); err != nil {
			return err
		}
		w.resourceVersion = list.ResourceVersion
		w.connected()
		w.onChange(firstOrNil(list.Items))
	}
	events, err := w.client.Watch(ctx, &list, client.InNamespace(w.namespace), byName,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: w.resourceVersion, AllowWatchBookmarks: true}})
	if err != nil {
		return err
	}
	defer events.Stop()
	w.connected()
	for event := range events.ResultChan() {
		if err := w.handle(event); err != nil {
			return err
		}
	}
	return nil
}

func firstOrNil(groups []v1.ElectionGroup) *v1.ElectionGroup {
	if len(groups) == 0 {
		return nil
	}
	return &groups[0]
}

// connected records that the API server has responded.
func (w *groupWatcher) connected() {
	if w.disconnected {
		w.disconnected = false
		w.onConnection(nil)
	}
}

func (w *groupWatcher) handle(event watch.Event) error {
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
		w.onChange(g)
	case watch.Deleted:
		w.onChange(nil)
	case watch.Bookmark:
	default:
		return errors.New("the API server sent an event of an unknown type")
	}
	return nil
}
