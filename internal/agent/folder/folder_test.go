package folder

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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
	changes, stop, err := Changes(path, slog.New(slog.DiscardHandler))
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

// TestAFolderThatIsNotThereIsRefused.
func TestAFolderThatIsNotThereIsRefused(t *testing.T) {
	if _, _, err := Changes(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the refusal is %v", err)
	}
}
