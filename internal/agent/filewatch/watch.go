// Package filewatch detects changes in a directory, by events of the kernel and by polling. There are no events for
// changes on another machine (NFS), in the target of a symbolic link, or through a mapping.
package filewatch

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pause is the time between an event and the check. Files may be written in several steps. And another file in the
	// directory may be written all the time: the kernel merges equal events that follow each other unread.
	pause = 100 * time.Millisecond
	// fastPoll is the polling interval without events, and while the last check failed.
	fastPoll = time.Second
	// slowPoll is the polling interval in addition to events.
	slowPoll = 5 * time.Second
)

// Watch calls check at once, after each change in a directory, and at intervals, until ctx ends. The directory need not
// exist yet. changed reports whether something in it may have changed since the last call. If check returns false, it
// is called again soon.
//
// If file isn't empty, writes to other files are ignored, such as to a log in the same directory. But files that are
// created, renamed and removed always matter, because a symbolic link may lead to them.
func Watch(ctx context.Context, dir, file string, log *slog.Logger, check func(changed bool) (ok bool)) {
	watcher, err := fsnotify.NewBufferedWatcher(128)
	if err != nil {
		log.Warn("cannot watch files; polling every second", "error", err)
		watcher = nil
	} else {
		defer watcher.Close()
	}
	for changed, watched := true, false; ctx.Err() == nil; {
		watching := watcher != nil && watcher.Add(dir) == nil // Again, because the directory may be another one.
		next := slowPoll
		if !check(changed || !watched || !watching) || !watching {
			next = fastPoll
		}
		watched, changed = watching, wait(ctx, watcher, file, next)
	}
}

// wait waits for a change, but no longer than a time.
func wait(ctx context.Context, watcher *fsnotify.Watcher, file string, most time.Duration) (changed bool) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	if watcher != nil {
		events, failures = watcher.Events, watcher.Errors
	}
	timeout := time.After(most)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timeout:
			return false
		case <-failures: //nolint:errcheck // events were lost, whatever the reason
			return true
		case e := <-events:
			changed = matters(e, file)
			time.Sleep(pause)
			for range len(events) {
				changed = matters(<-events, file) || changed
			}
			if changed {
				return true
			}
		}
	}
}

func matters(e fsnotify.Event, file string) bool {
	return file == "" || filepath.Base(e.Name) == file || e.Op&^(fsnotify.Write|fsnotify.Chmod) != 0
}
