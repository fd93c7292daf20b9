package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 40 * time.Millisecond
	// longestPause is short: the agent is on the same machine, and nobody leads here without it.
	longestPause = time.Second
)

// backoff spaces attempts to reach the agent: by twice as long each time, and
// by chance, so that the processes of a machine don't come all at once.
type backoff struct{ next time.Duration }

// reset: the last attempt was a success for long enough.
func (b *backoff) reset() { b.next = 0 }

func (b *backoff) draw() time.Duration {
	b.next = min(max(2*b.next, firstPause), longestPause)
	return b.next/2 + rand.N(b.next/2)
}

// pause waits until the next attempt, and reports whether there is to be one.
func (b *backoff) pause(ctx context.Context) bool {
	select {
	case <-time.After(b.draw()):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
