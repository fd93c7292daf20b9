package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

func waitFor(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Fatalf("timed out waiting for %s", what)
	}
}

func everything(string) bool { return true }

// TestContentOfOtherFilesIsIgnored: a log in the same directory isn't a reason for a check,
// but a new file may be.
func TestContentOfOtherFilesIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		signals := make(chan struct{}, 1)
		go forward(watcher, func(name string) bool { return name == "agent.yaml" }, signals, slog.New(slog.DiscardHandler))
		defer close(watcher.Events)
		for _, c := range []struct {
			name string
			op   fsnotify.Op
			want int
		}{
			{"log", fsnotify.Write, 0},
			{"log", fsnotify.Chmod, 0},
			{"agent.yaml", fsnotify.Write, 1},
			{"log", fsnotify.Create, 1},
			{"log", fsnotify.Rename, 1},
			{"log", fsnotify.Remove, 1},
			{"log", fsnotify.Write | fsnotify.Create, 1},
		} {
			watcher.Events <- fsnotify.Event{Name: filepath.Join("dir", c.name), Op: c.op}
			time.Sleep(2 * maxDebounce)
			if len(signals) != c.want {
				t.Errorf("%s of %s: got %d signals, want %d", c.op, c.name, len(signals), c.want)
			}
			select {
			case <-signals:
			default:
			}
		}
	})
}

// TestChangesAreSignaled: also if nothing reads the channel at the time. The update of a
// mounted ConfigMap replaces a symbolic link.
func TestChangesAreSignaled(t *testing.T) {
	path := t.TempDir()
	changes, stop, err := watch(path, everything, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, name := range []string{"one", "two", "three"} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, changes, "written files")
	if err := os.Symlink("one", filepath.Join(path, "next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(path, "next"), filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, changes, "a replaced link")
}

// TestErrorsAreSignaledAsChanges: and further events are still forwarded.
func TestErrorsAreSignaledAsChanges(t *testing.T) {
	watcher := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	signals := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		forward(watcher, everything, signals, slog.New(slog.DiscardHandler))
	}()
	watcher.Errors <- fsnotify.ErrEventOverflow
	waitFor(t, signals, "an error")
	watcher.Errors <- fsnotify.ErrEventOverflow
	watcher.Events <- fsnotify.Event{}
	waitFor(t, signals, "an event")
	close(watcher.Events)
	<-ended
}

// TestContinuousChangesAreSignaled: another file in the directory may be a log.
func TestContinuousChangesAreSignaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		signals := make(chan struct{}, 1)
		go forward(watcher, everything, signals, slog.New(slog.DiscardHandler))
		defer close(watcher.Events)
		for start := time.Now(); len(signals) == 0; {
			watcher.Events <- fsnotify.Event{}
			time.Sleep(debounce / 2)
			if time.Since(start) > 2*maxDebounce {
				t.Fatal("got no signal")
			}
		}
	})
}

// TestRun: a poll isn't reported as a change if there is a watch.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		watched bool
		want    string
	}{
		"with inotify":    {true, "0s true, 5s false, 6s true, 11s false, 12s false"},
		"without inotify": {false, "0s true, 1s true, 2s true, 3s true, 4s true"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes chan struct{}
				if c.watched {
					changes = make(chan struct{}, 1)
					time.AfterFunc(6*time.Second, func() { changes <- struct{}{} })
				}
				ctx, cancel := context.WithCancel(t.Context())
				var checks []string
				start := time.Now()
				run(ctx, changes, func(changed bool) bool {
					checks = append(checks, fmt.Sprint(time.Since(start), " ", changed))
					if len(checks) == 5 {
						cancel()
					}
					return len(checks) < 4 // The fourth check fails.
				})
				if got := strings.Join(checks, ", "); got != c.want {
					t.Errorf("got checks at %s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestMissingDirectory(t *testing.T) {
	if _, _, err := watch(filepath.Join(t.TempDir(), "none"), everything, slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}
