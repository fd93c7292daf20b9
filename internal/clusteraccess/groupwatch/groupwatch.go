// Package groupwatch watches ElectionGroups while the API server comes and goes.
package groupwatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Handler receives the groups. The Watcher calls one method at a time.
type Handler interface {
	// Replace receives all groups: at the start, and when changes may have been missed.
	Replace(groups []v1.ElectionGroup)
	// Set receives a new or changed group, and Delete one that was deleted.
	Set(g *v1.ElectionGroup)
	Delete(g *v1.ElectionGroup)
	// Connected is called whenever a watch has begun, and Failed whenever a request has
	// failed. If Failed returns an error, the Watcher ends with it.
	Connected()
	Failed(err error) error
}

// Watcher reports the groups of a cluster and each change of them to a Handler.
type Watcher struct {
	Client client.WithWatch
	// Namespace is that of the groups, or "" for all.
	Namespace string
	// RetryInterval is the time between two attempts to reach the API server.
	RetryInterval time.Duration
	Handler       Handler

	// resourceVersion is that of the last event. If it is empty, the watcher lists the groups before it watches.
	resourceVersion string
}

// Run watches until the context ends or the Handler ends it. It resumes an interrupted watch at the last resource
// version. If the API server no longer retains that version, it lists the groups again.
func (w *Watcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := w.watchOnce(ctx)
		switch {
		case ctx.Err() != nil:
			continue // An error after cancellation is not a failure.
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			w.resourceVersion = ""
			continue
		case err != nil:
			if err := w.Handler.Failed(err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.RetryInterval):
		}
	}
	return nil
}

// watchOnce makes one watch request and handles its events until it ends. API servers
// end each watch after some minutes.
func (w *Watcher) watchOnce(ctx context.Context) error {
	options := []client.ListOption{client.InNamespace(w.Namespace)}
	if w.resourceVersion == "" {
		if err := w.list(ctx, options); err != nil {
			return err
		}
	}
	options = append(options,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: w.resourceVersion, AllowWatchBookmarks: true}})
	events, err := w.Client.Watch(ctx, &v1.ElectionGroupList{}, options...)
	if err != nil {
		return err
	}
	defer events.Stop()
	w.Handler.Connected()
	for event := range events.ResultChan() {
		if err := w.handle(event); err != nil {
			return err
		}
	}
	return nil
}

// pageSize bounds the memory that a response occupies. The pages show the same moment.
const pageSize = 200

// list lists the groups.
func (w *Watcher) list(ctx context.Context, options []client.ListOption) error {
	var groups []v1.ElectionGroup
	var page v1.ElectionGroupList
	for first := true; first || page.Continue != ""; first = false {
		from := page.Continue
		page = v1.ElectionGroupList{}
		if err := w.Client.List(ctx, &page,
			append(slices.Clip(options), client.Limit(pageSize), client.Continue(from))...); err != nil {
			return err
		}
		for i := range page.Items {
			page.Items[i].ManagedFields = nil // They can be larger than all the rest.
		}
		groups = append(groups, page.Items...)
	}
	w.resourceVersion = page.ResourceVersion
	w.Handler.Replace(groups)
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
		w.Handler.Set(g)
	case watch.Deleted:
		w.Handler.Delete(g)
	case watch.Bookmark:
	default:
		return fmt.Errorf("the API server sent an event of the unknown type %q", event.Type)
	}
	return nil
}
