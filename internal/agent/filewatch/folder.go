// Package filewatch tells when something happens in a folder.
package filewatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// calm is how long nothing happens before it is told: files may be written in
	// pieces. But something else may be written all the time beside them, so it is
	// told after patience in any case.
	calm     = 100 * time.Millisecond
	patience = time.Second
	// often is how often to look where the kernel can't tell, or again. Where it can,
	// it may not tell of everything: of what a link leads to, or a folder made anew.
	often  = time.Second
	seldom = 5 * time.Second
)

// Watch has a folder looked at, at once and whenever something has happened in it,
// until ctx ends; and every now and then all the same. look learns whether something
// may have happened, as far as that can be told, and reports whether it is content:
// if not, it is called again soon.
func Watch(ctx context.Context, path string, log *slog.Logger, look func(happened bool) (content bool)) {
	changes, stop, err := watch(path, log)
	if err != nil {
		log.Warn("looks at a folder every second, since the kernel doesn't tell when it changes", "folder", path, "error", err)
	} else {
		defer stop()
	}
	follow(ctx, changes, look)
}

// follow is Watch by what is told; nobody tells if changes is nil.
func follow(ctx context.Context, changes <-chan struct{}, look func(happened bool) (content bool)) {
	happened := true // Before anybody watched.
	for ctx.Err() == nil {
		next := seldom
		if !look(happened) || changes == nil {
			next = often
		}
		select {
		case <-ctx.Done():
		case <-changes:
			happened = true
		case <-time.After(next):
			happened = changes == nil
		}
	}
}

// watch tells that something has happened in a folder, or may have: a mounted
// ConfigMap changes by a link beside its files. It fails if the kernel can't
// tell; then there is nothing to stop.
func watch(path string, log *slog.Logger) (changes <-chan struct{}, stop func(), err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	stop = func() { _ = watcher.Close() } // It only reads.
	if err := watcher.Add(path); err != nil {
		stop()
		return nil, nil, err
	}
	news := make(chan struct{}, 1)
	go tell(watcher, news, log)
	return news, stop, nil
}

// tell goes on until the watcher is closed. Its errors have to be read, too, or it
// waits with everything else.
func tell(watcher *fsnotify.Watcher, news chan<- struct{}, log *slog.Logger) {
	var began time.Time
	var soon <-chan time.Time
	for {
		select {
		case _, open := <-watcher.Events:
			if !open {
				return
			}
		case err, open := <-watcher.Errors:
			if !open {
				return
			}
			log.Debug("may have missed a change of a file", "error", err)
		case <-soon:
			soon = nil
			select {
			case news <- struct{}{}:
			default: // It is known already.
			}
			continue
		}
		if soon == nil {
			began = time.Now()
		}
		soon = time.After(min(calm, patience-time.Since(began)))
	}
}
