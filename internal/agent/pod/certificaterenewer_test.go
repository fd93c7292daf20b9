package pod

import (
	"testing"
	"time"
)

func TestRenewalTime(t *testing.T) {
	received := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	for lasts, want := range map[time.Duration]struct{ first, last time.Duration }{
		30 * time.Hour: {19 * time.Hour, 20 * time.Hour},
		0:              {0, 0},
		-time.Hour:     {-time.Hour, -time.Hour}, // by a clock that is ahead: due at once
	} {
		at := renewalTime(received, received.Add(lasts)).Sub(received)
		if at < want.first || at > want.last {
			t.Errorf("a certificate for %s is renewed after %s, want %s to %s", lasts, at, want.first, want.last)
		}
	}
}
