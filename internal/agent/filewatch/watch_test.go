package filewatch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/must"
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
	isConfig := func(name string) bool { return name == "agent.yaml" }
	for _, c := range []struct {
		events [][]byte
		want   bool
	}{
		{[][]byte{event("log", unix.IN_CLOSE_WRITE)}, false},
		{[][]byte{event("log", unix.IN_ATTRIB), event("another.log", unix.IN_CLOSE_WRITE)}, false},
		{[][]byte{event("log", unix.IN_CLOSE_WRITE), event("agent.yaml", unix.IN_CLOSE_WRITE)}, true},
		{[][]byte{event("agent.yaml", unix.IN_ATTRIB), event("log", unix.IN_CLOSE_WRITE)}, true},
		{[][]byte{event("log", unix.IN_CREATE)}, true},
		{[][]byte{event("log", unix.IN_MOVED_FROM)}, true},
		{[][]byte{event("log", unix.IN_MOVED_TO)}, true},
		{[][]byte{event("log", unix.IN_DELETE)}, true},
		{[][]byte{event("", unix.IN_IGNORED)}, true},    // The directory was removed.
		{[][]byte{event("", unix.IN_Q_OVERFLOW)}, true}, // Events were lost.
		{nil, false},
	} {
		if got := isRelevant(bytes.Join(c.events, nil), isConfig); got != c.want {
			t.Errorf("%q: got %t, want %t", c.events, got, c.want)
		}
	}
}

// event returns an event as the kernel writes it.
func event(name string, mask uint32) []byte {
	padded := make([]byte, (len(name)+15)/16*16)
	copy(padded, name)
	header := make([]byte, 0, unix.SizeofInotifyEvent)
	for _, field := range []uint32{1, mask, 0, uint32(len(padded))} {
		header = binary.NativeEndian.AppendUint32(header, field)
	}
	return append(header, padded...)
}

// endless returns the same event from each Read, until it ends.
type endless struct {
	event []byte
	reads int
	end   time.Time
}

func (e *endless) Read(into []byte) (int, error) {
	e.reads++
	if time.Now().After(e.end) {
		return 0, io.EOF
	}
	return copy(into, e.event), nil
}

// TestContinuousChangesCostLittle: another file in the directory is written all the time. The watch reads ten times a second,
// and signals the changes if they matter.
func TestContinuousChangesCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, matters := range []bool{false, true} {
			signals := make(chan struct{}, 1)
			events := &endless{event: event("log", unix.IN_CLOSE_WRITE), end: time.Now().Add(10 * time.Second)}
			forward(events, func(string) bool { return matters }, signals, slog.New(slog.DiscardHandler))
			if events.reads > 103 || len(signals) > 0 != matters {
				t.Errorf("matters %t: got %d reads in 10 s and %d signals, want 10 a second", matters, events.reads, len(signals))
			}
		}
	})
}

// TestChangesAreSignaled: also if nothing reads the channel at the time. The update of a
// mounted ConfigMap replaces a symbolic link.
func TestChangesAreSignaled(t *testing.T) {
	path := t.TempDir()
	changes, stop, err := watch(path, everything, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	defer stop()
	for _, name := range []string{"one", "two", "three"} {
		must.Succeed(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	waitFor(t, changes, "written files")
	must.Succeed(t, os.Symlink("one", filepath.Join(path, "next")))
	must.Succeed(t, os.Rename(filepath.Join(path, "next"), filepath.Join(path, "link")))
	waitFor(t, changes, "a replaced link")
}

// TestRepeatedWritesAreSignaled: and a change that follows them.
func TestRepeatedWritesAreSignaled(t *testing.T) {
	path := t.TempDir()
	log := filepath.Join(path, "log")
	changes, stop, err := watch(path, func(name string) bool { return name == "log" }, slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	defer stop()
	for range 1000 {
		must.Succeed(t, os.WriteFile(log, []byte("x"), 0o600))
	}
	waitFor(t, changes, "a written file")
	must.Succeed(t, os.Remove(log))
	waitFor(t, changes, "a removed file")
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
