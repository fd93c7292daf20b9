package agent

import (
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
)

// wallClockInterval is the time between two readings of the wall clock. After two that
// differ from the expected time, the clock is corrected.
const wallClockInterval = 5 * time.Second

func (a *Agent) followWallClock() (stop func()) {
	done := make(chan struct{})
	wall := a.options.Wall
	if wall == nil {
		wall = clock.Wall
	}
	ticker := time.NewTicker(wallClockInterval)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				a.correctClock(wall())
			case <-done:
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// correctClock compares the clock with the time of day. Peers that refused to connect
// because the clocks differed are dialed again anyway.
func (a *Agent) correctClock(wall time.Time) {
	before := a.options.Clock.CurrentTerm()
	if !a.options.Clock.Correct(wall) {
		return
	}
	now := a.options.Clock.CurrentTerm()
	a.options.Log.Warn("corrected clock: the wall clock was set", "before", before, "now", now)
	for _, g := range a.running() {
		g.CorrectClock()
	}
}
