package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	minDelay = 40 * time.Millisecond
	// maxDelay is short, because the agent is on the same machine and this process cannot be coordinator without it.
	maxDelay = time.Second
)

// backoff delays attempts to reach the agent. The delay doubles with each attempt, and
// is randomized so that the processes of a machine don't retry at the same time.
type backoff struct{ delay time.Duration }

// reset restarts the backoff after a success.
func (b *backoff) reset() { b.delay = 0 }

func (b *backoff) nextDelay() time.Duration {
	b.delay = min(max(2*b.delay, minDelay), maxDelay)
	return b.delay/2 + rand.N(b.delay/2)
}

// wait waits for the next delay. It returns false if ctx ends before.
func (b *backoff) wait(ctx context.Context) bool {
	select {
	case <-time.After(b.nextDelay()):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
