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

// follower tells a group's present state, and each change of it.
type follower struct {
	client          client.WithWatch
	namespace, name string
	// changed is told the group; nil, if there is none. lost is told why the API
	// server can't be asked, once, and nil when it can again.
	changed func(*v1.ElectionGroup)
	lost    func(error)
	// pause is how long to wait before asking again.
	pause time.Duration

	// version is what the API server has told last. Without it, it is asked for the
	// present state.
	version string
	cut     bool
}

// run follows until the context ends. An interrupted watch is resumed where it
// was, and what the API server doesn't remember that long is asked for anew.
func (f *follower) run(ctx context.Context) {
	for {
		err := f.stretch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			f.version = ""
			continue
		case err == nil:
			// API servers end a watch after some minutes.
		case !f.cut:
			f.cut = true
			f.lost(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(f.pause):
		}
	}
}

// stretch is one watch, from the version that is known.
func (f *follower) stretch(ctx context.Context) error {
	var list v1.ElectionGroupList
	only := client.MatchingFields{"metadata.name": f.name}
	if f.version == "" {
		if err := f.client.List(ctx, &list, client.InNamespace(f.namespace), only); err != nil {
			return err
		}
		f.version = list.ResourceVersion
		f.found()
		f.changed(one(list.Items))
	}
	w, err := f.client.Watch(ctx, &list, client.InNamespace(f.namespace), only,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true}})
	if err != nil {
		return err
	}
	defer w.Stop()
	f.found()
	for event := range w.ResultChan() {
		if err := f.take(event); err != nil {
			return err
		}
	}
	return nil
}

func one(groups []v1.ElectionGroup) *v1.ElectionGroup {
	if len(groups) == 0 {
		return nil
	}
	return &groups[0]
}

// found: the API server answers.
func (f *follower) found() {
	if f.cut {
		f.cut = false
		f.lost(nil)
	}
}

func (f *follower) take(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	g, ok := event.Object.(*v1.ElectionGroup)
	if !ok {
		return fmt.Errorf("the API server sent a %T", event.Object)
	}
	f.version = g.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		f.changed(g)
	case watch.Deleted:
		f.changed(nil)
	case watch.Bookmark:
	default:
		return errors.New("the API server sent an event of an unknown type")
	}
	return nil
}
