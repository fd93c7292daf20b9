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

// tryTake returns the function that ends the turn, or nil if none is free.
func (t turns) tryTake() (end func()) {
	select {
	case t <- struct{}{}:
		return t.begin()
	default:
		return nil
	}
}

// take waits for a turn.
func (t turns) take(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
		return t.begin(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t turns) begin() (end func()) {
	longest := time.AfterFunc(turnMax, func() { <-t })
	return func() {
		if longest.Stop() {
			<-t
		}
	}
}
