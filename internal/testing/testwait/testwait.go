// Package testwait waits in tests: for a condition, for a value from a channel, and
// for a log message. All of it also works on the virtual time of testing/synctest.
package testwait

import (
	"context"
	"testing"
	"time"
)

const (
	// Limit is how long Until, NoError and Receive wait. It is much longer than any
	// test needs, because the machine may be busy: only failing tests wait for it.
	Limit = 2 * time.Minute
	// interval is the time between two checks of a condition.
	interval = time.Millisecond
)

// Until waits until the condition holds. Otherwise, the test fails with the name of the condition.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !Within(Limit, interval, condition) {
		t.Fatalf("condition not met within %s: %s", Limit, what)
	}
}

// Within checks the condition at each interval. It reports whether the condition held before the limit.
func Within(limit, interval time.Duration, condition func() bool) bool {
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(interval) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// NoError waits until the check returns nil. Otherwise, the test fails with the last error.
func NoError(t testing.TB, check func() error) {
	t.Helper()
	var last error
	if !Within(Limit, interval, func() bool { last = check(); return last == nil }) {
		t.Fatalf("still failing after %s: %v", Limit, last)
	}
}

// Context returns a context that ends with the test, or after Limit.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Receive waits for a value from a channel, or for its end. Otherwise, the test fails with the name of the value.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(Limit):
		t.Fatalf("nothing received within %s: %s", Limit, what)
		panic("unreachable")
	}
}
