package controllerruntime

import (
	"math"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/client"
)

const (
	// marginShare is the share of the lease by which the process exits before its end, and maxMargin bounds that.
	marginShare = 8
	maxMargin   = 2 * time.Second
	// silenceMax is the time without a renewal after which the process exits if there is no lease. The client renews each second,
	// and the agent gives up the office after four.
	silenceMax = 3 * time.Second
)

// deadline is the time at which the process must have ended unless the manager has stopped. Its times are those of
// client.Renewal.
type deadline struct {
	token  uint64
	margin time.Duration
	// leaseEnd is when the tenure ends without another renewal, and drainEnd when the agent hands the office over.
	leaseEnd, drainEnd time.Duration
	// leased is set if there is a lease. Then a response without its end, as while the office changes, extends nothing.
	leased bool
	// led is when the last request was sent to which the agent responded that this process leads.
	led, drainTimeout time.Duration
}

// renew handles a response of the agent.
func (d *deadline) renew(r client.Renewal) {
	if r.Token != d.token {
		*d = deadline{token: r.Token}
	}
	until := r.Until
	switch {
	case until != 0:
		d.leased = true
	case !d.leased:
		until = r.Sent + silenceMax
	}
	if d.margin == 0 {
		d.margin = min((until-r.Sent)/marginShare, maxMargin)
	}
	d.leaseEnd, d.drainTimeout = max(d.leaseEnd, until), r.DrainTimeout
	if r.Stopping {
		d.drain()
	} else {
		d.led = max(d.led, r.Sent)
	}
}

// drain says that the agent has asked this process to stop.
func (d *deadline) drain() {
	if d.drainEnd == 0 {
		d.drainEnd = d.led + d.drainTimeout
	}
}

func (d *deadline) at() time.Duration {
	end := d.leaseEnd
	if d.drainEnd != 0 {
		end = min(end, d.drainEnd)
	}
	return end - d.margin
}

// limit calls a function at the deadline.
type limit struct {
	mu       sync.Mutex
	deadline deadline
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
	if r.Ended {
		l.timer.Stop()
		l.deadline = deadline{}
		return
	}
	l.deadline.renew(r)
	l.received, l.receivedAt = r.Received, time.Now()
	l.timer.Reset(l.remaining())
}

func (l *limit) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline.drain()
	l.timer.Reset(l.remaining())
}

func (l *limit) stop() { l.timer.Stop() }

// remaining returns the time until the deadline.
func (l *limit) remaining() time.Duration {
	return l.deadline.at() - l.received - time.Since(l.receivedAt)
}
