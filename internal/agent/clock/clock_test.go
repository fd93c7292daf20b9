package clock

import (
	"testing"
	"time"
)

// TestReadingLagsBehindByMaxDelay: a derived reading is at most the reading of the kernel,
// and at least that minus maxDelay.
func TestReadingLagsBehindByMaxDelay(t *testing.T) {
	r := reading{started: time.Now()}
	last := time.Duration(0)
	for range 10_000 {
		before := Boottime()
		got := r.boottime()
		after := Boottime()
		if got < before-maxDelay || got > after || got < last {
			t.Fatalf("got %d, want at least %d, and %d minus %s, and at most %d", got, last, before, maxDelay, after)
		}
		last = got
	}
}

func TestOldReadingIsNotUsed(t *testing.T) {
	r := reading{started: time.Now().Add(-time.Hour), at: time.Hour - validity, boot: 1}
	if before, got := Boottime(), r.boottime(); got < before {
		t.Errorf("got %d, want at least %d", got, before)
	}
}
