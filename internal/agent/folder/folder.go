// Package folder tells when something happens in a folder.
package folder

import (
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
	// often is how often to look where the kernel can't tell. It may not tell of
	// everything either: of what a link leads to, or of a folder made anew.
	often  = time.Second
	seldom = 5 * time.Second
)

// LookAfter is after how long to look at a folder of which no change was told.
func LookAfter(changes <-chan struct{}) time.Duration {
	if changes == nil {
		return often
	}
	return seldom
}

// Changes tells that something has happened in a folder, or may have: a mounted
// ConfigMap changes by a link beside its files. It fails if the kernel can't
// tell; then there is nothing to stop.
func Changes(path string, log *slog.Logger) (changes <-chan struct{}, stop func(), err error) {
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
