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

func await(t *testing.T, changes <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(time.Minute):
		t.Fatalf("nobody tells that %s", what)
	}
}

// TestWhatHappensInAFolderIsTold, to one who doesn't listen all the time too: a
// ConfigMap that is mounted anew swaps a link.
func TestWhatHappensInAFolderIsTold(t *testing.T) {
	path := t.TempDir()
	changes, stop, err := watch(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, name := range []string{"one", "two", "three"} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	await(t, changes, "files were written")
	if err := os.Symlink("one", filepath.Join(path, "next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(path, "next"), filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	await(t, changes, "a link was swapped")
}

// TestTroubleOfTheKernelMayHideAChange, so it is told like one; and more follows.
func TestTroubleOfTheKernelMayHideAChange(t *testing.T) {
	watcher := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	news := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tell(watcher, news, slog.New(slog.DiscardHandler))
	}()
	watcher.Errors <- fsnotify.ErrEventOverflow
	await(t, news, "something may have been missed")
	watcher.Errors <- fsnotify.ErrEventOverflow
	watcher.Events <- fsnotify.Event{}
	await(t, news, "something has happened")
	close(watcher.Events)
	<-ended
}

// TestWhatNeverRestsIsToldAllTheSame: a log may be written beside the file.
func TestWhatNeverRestsIsToldAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watcher := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		news := make(chan struct{}, 1)
		go tell(watcher, news, slog.New(slog.DiscardHandler))
		defer close(watcher.Events)
		for begun := time.Now(); len(news) == 0; {
			watcher.Events <- fsnotify.Event{}
			time.Sleep(calm / 2)
			if time.Since(begun) > 2*patience {
				t.Fatal("it isn't told")
			}
		}
	})
}

// TestWhatIsSaidOfALook: what is looked at every now and then needn't have changed.
func TestWhatIsSaidOfALook(t *testing.T) {
	for name, c := range map[string]struct {
		told bool
		want string
	}{
		"the kernel tells": {true, "0s true, 5s false, 6s true, 11s false, 12s false"},
		"nobody tells":     {false, "0s true, 1s true, 2s true, 3s true, 4s true"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes chan struct{}
				if c.told {
					changes = make(chan struct{}, 1)
					time.AfterFunc(6*time.Second, func() { changes <- struct{}{} })
				}
				ctx, cancel := context.WithCancel(t.Context())
				var looks []string
				begun := time.Now()
				follow(ctx, changes, func(happened bool) bool {
					looks = append(looks, fmt.Sprint(time.Since(begun), " ", happened))
					if len(looks) == 5 {
						cancel()
					}
					return len(looks) < 4 // Then it wants to look again.
				})
				if got := strings.Join(looks, ", "); got != c.want {
					t.Errorf("it was looked at %s, and should be %s", got, c.want)
				}
			})
		})
	}
}

// TestAFolderThatIsNotThereIsRefused.
func TestAFolderThatIsNotThereIsRefused(t *testing.T) {
	if _, _, err := watch(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the refusal is %v", err)
	}
}
