package controllerruntime

import (
	"math"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/client"
)

// limit calls a function at the deadline of the present tenure.
type limit struct {
	mu sync.Mutex
	// token is that of the tenure of deadline.
	token    uint64
	deadline client.Deadline
	timer    *time.Timer
	// received is when the last renewal came, on both clocks.
	received   time.Duration
	receivedAt time.Time
}

func newLimit(expired func()) *limit {
	l := &limit{}
	l.timer = time.AfterFunc(math.MaxInt64, func() {
		l.mu.Lock()
		over := l.remaining() <= 0
		l.mu.Unlock()
		if over { // A renewal may have come while the timer fired.
			expired()
		}
	})
	return l
}

func (l *limit) renew(r client.Renewal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Ended || r.Token != l.token {
		l.timer.Stop()
		l.token, l.deadline = r.Token, client.Deadline{}
	}
	if r.Ended {
		return
	}
	l.deadline.Renew(r)
	if r.Stopping {
		l.deadline.Stop(l.deadline.Led())
	}
	l.received, l.receivedAt = r.Received, time.Now()
	l.timer.Reset(l.remaining())
}

func (l *limit) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline.Stop(l.deadline.Led())
	l.timer.Reset(l.remaining())
}

func (l *limit) stop() { l.timer.Stop() }

// remaining returns the time until the deadline.
func (l *limit) remaining() time.Duration {
	return l.deadline.At() - l.received - time.Since(l.receivedAt)
}
