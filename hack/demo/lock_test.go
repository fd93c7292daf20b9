package main

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Only one demo runs at a time. The next one can start when it has ended.
func TestSecondDemoFails(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	first, err := lock()
	must.Succeed(t, err)
	if _, err := lock(); err == nil || !strings.Contains(err.Error(), "another make demo is running") {
		t.Errorf("got %v, want an error while the first demo is running", err)
	}
	must.Succeed(t, first.Close())
	again, err := lock()
	if err != nil {
		t.Fatalf("after the end of the first demo: %v", err)
	}
	must.Succeed(t, again.Close())
}
