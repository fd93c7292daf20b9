// Package poll waits in tests for conditions that no event signals.
package poll

import (
	"testing"
	"time"
)

// limit is far longer than any condition takes.
const limit = 30 * time.Second

// Until checks a condition each millisecond until it holds. It fails the test after
// 30 s.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(limit)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}
