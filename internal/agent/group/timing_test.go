package group

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestReplyTimeoutFollowsRoundTrip(t *testing.T) {
	cluster := newCluster(t, map[string]int{"a": 10, "b": 20}, func(g *config.Group) { g.Timing.SuspicionTimeout = time.Second })
	for measured, want := range map[time.Duration]time.Duration{
		0:                      10 * time.Millisecond,
		time.Millisecond:       12 * time.Millisecond,
		100 * time.Millisecond: 210 * time.Millisecond,
		time.Hour:              time.Second,
	} {
		cluster.mu.Lock()
		cluster.roundTrip = measured
		cluster.mu.Unlock()
		expect.Equalf(t, cluster.group("a").replyTimeout(), want, "round trip %s", measured)
	}
}
