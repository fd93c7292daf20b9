//go:build linux

package nodefault

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The main thread: init runs on it, and TestMain unlocks it.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	runtime.UnlockOSThread()
	onMainThread = unix.Gettid() == unix.Getpid() && leavesMainThread()
	os.Exit(m.Run())
}

// onMainThread reports whether the network of the process was the same after a call from the
// main thread.
var onMainThread bool

func leavesMainThread() bool {
	before, err := os.Readlink(ownNetwork)
	if err != nil {
		return false
	}
	for range 20 { // A new goroutine usually runs on the thread of a goroutine that waits for it.
		_ = inNetwork(newNetwork, func() error { return nil }) // Without permission, no network changes.
	}
	after, err := os.Readlink(ownNetwork)
	return err == nil && after == before
}

// The main thread doesn't end with a goroutine. If it entered another network, rules for the
// node would be added there from then on.
func TestMainThreadStaysInItsNetwork(t *testing.T) {
	if !onMainThread {
		t.Error("got another network of this process, want that it stays")
	}
}
