// Package filewatch detects changes in a directory.
//
// It combines inotify with polling. inotify doesn't report everything: not changes of
// the target of a symbolic link, and nothing after the directory itself is replaced.
// On some file systems, it isn't available at all.
package filewatch

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pause is the time between two reads of events. Files may be written in several steps. And another file in the directory
	// may be written all the time: the kernel merges equal events that follow each other unread.
	pause = 100 * time.Millisecond
	// fastPoll is the polling interval without inotify, and while the last check failed.
	fastPoll = time.Second
	// slowPoll is the polling interval in addition to inotify.
	slowPoll = 5 * time.Second
	// content has the events that concern only the content and the attributes of a file.
	content = unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
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

// watch starts to watch the directory, rather than single files: in a volume of
// the kubelet, only a symbolic link beside the files changes. The channel receives a
// value after changes.
func watch(path string, relevant func(string) bool, log *slog.Logger) (changes <-chan struct{}, stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use inotify: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	stop = func() { _ = events.Close() } // Nothing was written.
	const mask = content | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, path, mask); err != nil {
		stop()
		return nil, nil, &os.PathError{Op: "watch", Path: path, Err: err}
	}
	signals := make(chan struct{}, 1)
	go forward(events, relevant, signals, log)
	return signals, stop, nil
}

// forward signals relevant events until they can't be read any more, because the watch is stopped.
func forward(events io.Reader, relevant func(string) bool, signals chan<- struct{}, log *slog.Logger) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := events.Read(buffer)
		if err != nil {
			log.Debug("the watch has ended", "error", err)
			return
		}
		time.Sleep(pause)
		if !isRelevant(buffer[:n], relevant) {
			continue
		}
		select {
		case signals <- struct{}{}:
		default: // A signal is pending already.
		}
	}
}

// isRelevant reports whether one of the events matters. Each has a header, which ends with the length of the name that follows.
// Without a name, an event concerns the directory or the watch itself, or events were lost.
func isRelevant(events []byte, relevant func(name string) bool) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask, length := binary.NativeEndian.Uint32(events[4:]), int(binary.NativeEndian.Uint32(events[12:]))
		end := min(unix.SizeofInotifyEvent+length, len(events))
		name := string(bytes.TrimRight(events[unix.SizeofInotifyEvent:end], "\x00"))
		if name == "" || mask&^content != 0 || relevant(name) {
			return true
		}
		events = events[end:]
	}
	return false
}
