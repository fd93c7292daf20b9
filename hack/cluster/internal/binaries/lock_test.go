package binaries

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// TestLockWithRemoval: there is one holder at a time, also when holders remove the file as the last thing they do.
func TestLockWithRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				unlock, err := Lock(path, func() {})
				if err != nil {
					t.Error(err)
					return
				}
				if now := holders.Add(1); now != 1 {
					t.Errorf("%d hold the lock", now)
				}
				holders.Add(-1)
				_ = os.Remove(path)
				unlock()
			}
		})
	}
	all.Wait()
}
