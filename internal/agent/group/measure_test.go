package group

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

func TestTFollowsTheMeasuredDelays(t *testing.T) {
	town := found(t, map[string]int{"a": 10, "b": 20}, func(g *config.Group) { g.Timing.SuspicionTimeout = time.Second })
	for measured, want := range map[time.Duration]time.Duration{
		0:                      10 * time.Millisecond,
		time.Millisecond:       12 * time.Millisecond,
		100 * time.Millisecond: 210 * time.Millisecond,
		time.Hour:              time.Second,
	} {
		town.mu.Lock()
		town.roundTrip = measured
		town.mu.Unlock()
		if got := town.of("a").reply(); got != want {
			t.Errorf("with a round trip of %s, T is %s instead of %s", measured, got, want)
		}
	}
}
