// Package filewatch detects changes in a directory.
//
// It combines inotify with polling. inotify doesn't report everything: not changes of
// the target of a symbolic link, and nothing after the directory itself is replaced.
// On some file systems, it isn't available at all.
package filewatch

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// debounce is how long to wait for further changes before one is reported, because
	// files may be written in several steps. maxDebounce limits the total, because another
	// file in the directory may be written all the time.
	debounce    = 100 * time.Millisecond
	maxDebounce = time.Second
	// fastPoll is the polling interval without inotify, and while the last check failed.
	fastPoll = time.Second
	// slowPoll is the polling interval in addition to inotify.
	slowPoll = 5 * time.Second
)

// Watch calls check at once, after each change in a directory, and at intervals, until
// ctx ends. changed reports whether something in the directory may have changed since
// the last call. If check returns false, it is called again soon.
//
// relevant decides whether a change of the content of a file matters, given its name. It
// avoids a check for each line of a log file in the same directory. Files that are
// created, renamed and removed always matter, because a symbolic link may lead to them.
func Watch(ctx context.Context, path string, relevant func(name string) bool, log *slog.Logger, check func(changed bool) (ok bool)) {
	changes, stop, err := watch(path, relevant, log)
	if err != nil {
		log.Warn("cannot watch directory; polling every second", "directory", path, "error", err)
	} else {
		defer stop()
	}
	run(ctx, changes, check)
}

// run calls check. Without inotify, changes is nil.
func run(ctx context.Context, changes <-chan struct{}, check func(changed bool) (ok bool)) {
	changed := true // before the watch began
	for ctx.Err() == nil {
		next := slowPoll
		if !check(changed) || changes == nil {
			next = fastPoll
		}
		select {
		case <-ctx.Done():
		case <-changes:
			changed = true
		case <-time.After(next):
			changed = changes == nil
		}
	}
}

// watch starts to watch the directory, rather than single files: in a mounted
// ConfigMap, only a symbolic link beside the files changes. The channel receives a
// value after changes.
func watch(path string, relevant func(string) bool, log *slog.Logger) (changes <-chan struct{}, stop func(), err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	stop = func() { _ = watcher.Close() } // Nothing was written.
	if err := watcher.Add(path); err != nil {
		stop()
		return nil, nil, err
	}
	signals := make(chan struct{}, 1)
	go forward(watcher, relevant, signals, log)
	return signals, stop, nil
}

// forward debounces the events of the watcher until it is closed. It also reads the
// watcher's errors, which would block the events otherwise. An error counts as a
// change, because events may have been lost.
func forward(watcher *fsnotify.Watcher, relevant func(string) bool, signals chan<- struct{}, log *slog.Logger) {
	var began time.Time
	var due <-chan time.Time
	for {
		select {
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			const content = fsnotify.Write | fsnotify.Chmod
			if event.Op&^content == 0 && !relevant(filepath.Base(event.Name)) {
				continue
			}
		case err, open := <-watcher.Errors:
			if !open {
				return
			}
			log.Debug("events of file changes may be lost", "error", err)
		case <-due:
			due = nil
			select {
			case signals <- struct{}{}:
			default: // A signal is pending already.
			}
			continue
		}
		if due == nil {
			began = time.Now()
		}
		due = time.After(min(debounce, maxDebounce-time.Since(began)))
	}
}
