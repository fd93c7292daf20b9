package binaries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Ctrl-C ends the wait for another command.
func TestWaitForLockEndsWithContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Lock(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}

// Each holder removes the file before it unlocks.
func TestLockHasOneHolderWhenFileIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				unlock, err := Lock(t.Context(), path, func() {})
				if err != nil {
					t.Error(err)
					return
				}
				if now := holders.Add(1); now != 1 {
					t.Errorf("got %d holders of the lock, want 1", now)
				}
				holders.Add(-1)
				_ = os.Remove(path)
				unlock()
			}
		})
	}
	all.Wait()
}
