package testwait

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// fakeT records the message of Fatalf, and ends the function under test by a panic.
type fakeT struct {
	testing.TB

	message string
}

func (*fakeT) Helper() {}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

func messageOf(do func(t testing.TB)) string {
	f := &fakeT{}
	func() {
		defer func() { _ = recover() }()
		do(f)
	}()
	return f.message
}

func TestWaitsEndInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(t testing.TB, after time.Duration)
		want string
	}{
		"Until": {func(t testing.TB, after time.Duration) {
			begun := time.Now()
			Until(t, "it is late", func() bool { return time.Since(begun) >= after })
		}, "condition not met within 2m0s: it is late"},
		"NoError": {func(t testing.TB, after time.Duration) {
			begun := time.Now()
			NoError(t, func() error {
				if time.Since(begun) < after {
					return errors.New("too early")
				}
				return nil
			})
		}, "still failing after 2m0s: too early"},
		"Receive": {func(t testing.TB, after time.Duration) {
			Receive(t, "the time", time.After(after))
		}, "nothing received within 2m0s: the time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := messageOf(func(t testing.TB) { tc.do(t, Limit-time.Second) }); got != "" {
					t.Errorf("got failure %q, want none", got)
				}
				if got := messageOf(func(t testing.TB) { tc.do(t, Limit+time.Second) }); got != tc.want {
					t.Errorf("got failure %q, want %q", got, tc.want)
				}
			})
		})
	}
}
