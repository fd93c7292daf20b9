package transport

import (
	"context"
	"time"
)

// A handshake takes one to two milliseconds of processor time. If a hundred agents that start at once on two cores dialed all others
// at once, no handshake would be complete when its time is over, and the next attempts wouldn't be either. So an agent begins
// few handshakes at a time.
const (
	// handshakesAtOnce is the number of turns.
	handshakesAtOnce = 8
	// turnMax bounds a turn: peers that accept connections but don't answer, such as frozen ones, mustn't keep the others away.
	turnMax = time.Second
)

// turns are those of dials whose handshakes may begin, first come, first served.
type turns chan struct{}

// take waits for a turn. It returns how long that took, and the function that ends the turn.
func (t turns) take(ctx context.Context) (waited time.Duration, end func(), err error) {
	began := time.Now()
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	longest := time.AfterFunc(turnMax, func() { <-t })
	return time.Since(began), func() {
		if longest.Stop() {
			<-t
		}
	}, nil
}
