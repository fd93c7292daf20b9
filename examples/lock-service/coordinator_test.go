package main

import (
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// A process that was paused reports a lock that has expired meanwhile, before or after the process that holds the lock.
func TestExpiredLockHidesNoOther(t *testing.T) {
	now := time.Now()
	expired := grant{Lock: "lock/a", Holder: "paused", Token: 7, Number: 1, Millis: -300}
	valid := grant{Lock: "lock/a", Holder: "holder", Token: 7, Number: 2, Millis: 400}
	reports := [][]grant{{expired}, {valid}}
	for range 2 {
		held := map[string]heldLock{}
		for _, locks := range reports {
			remember(held, locks, now)
		}
		if got := held["lock/a"]; got.Holder != "holder" || !got.until.Equal(now.Add(400*time.Millisecond)) {
			t.Errorf("got %+v, want the lock of the holder", got)
		}
		slices.Reverse(reports)
	}
}

// The clocks of two processes may differ in rate, also after the coordinator has changed.
func TestRemainingTimeHasTheMarginOfTheClocks(t *testing.T) {
	expect.Equalf(t, atCoordinator(useMax), leaseMax, "the time for which a lock is granted")
}
