//go:build go1.25

package client

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLeaseEndsOnBoottime: a real timer of the kernel ends the context of the function, and a renewal postpones that.
func TestLeaseEndsOnBoottime(t *testing.T) {
	clock := newLeaseClock()
	lead := func(ctx context.Context, _ uint64) error { <-ctx.Done(); return nil }
	tenure := startTenure(t.Context(), clock, 7, token(7), clock.now()+time.Hour, lead)
	if !hasBootTimer(t) {
		t.Error("got no timer of CLOCK_BOOTTIME among the descriptors, want one for the lease")
	}
	if tenure.revoked() {
		t.Error("the lease has ended too early")
	}
	// The lease can't be shortened by a renewal, so expire it as a renewal of the past would.
	tenure.leaseTimer.set(clock.now())
	o := receive(t, "the end of the function", tenure.returned)
	wantError(t, o.cause, ErrNotRenewed)
	tenure.close()
	waitUntil(t, "the timer is closed", func() bool { return !hasBootTimer(t) })
}

// TestTimerNeedsEpoll: without epoll, reading from the timer would fail at once, and the
// lease would never end. epoll refuses regular files, too.
func TestTimerNeedsEpoll(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	regular, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer regular.Close()
	if !isPolled(r) || isPolled(regular) {
		t.Errorf("got %v for a pipe and %v for a regular file, want true and false", isPolled(r), isPolled(regular))
	}
}

// hasBootTimer reports whether this process has a timer of CLOCK_BOOTTIME (7).
func hasBootTimer(t *testing.T) bool {
	t.Helper()
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range infos {
		// The descriptor may be closed by now.
		if info, err := os.ReadFile(path); err == nil && strings.Contains(string(info), "clockid: 7") {
			return true
		}
	}
	return false
}

// TestSuspensionCountsForLease: the machine is suspended for an hour between a response and its use.
func TestSuspensionCountsForLease(t *testing.T) {
	clock := newLeaseClock()
	state := State{Leading: true, until: clock.now() + time.Minute}
	if !state.isLeadingAt(clock.now()) || state.isLeadingAt(clock.now()+time.Hour) {
		t.Error("want the state to be outdated after an hour")
	}
}
