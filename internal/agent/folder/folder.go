// Package folder tells when something happens in a folder.
package folder

import (
	"log/slog"

	"github.com/fsnotify/fsnotify"
)

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
		}
		select {
		case news <- struct{}{}:
		default: // It is known already.
		}
	}
}
