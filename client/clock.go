package client

import "time"

// leaseClock measures leases. Its times are durations since some moment. Where possible, it
// advances while the machine is suspended: the agent's lease does, too.
type leaseClock struct {
	now func() time.Duration
	// newTimer returns a timer that isn't set. It calls f, possibly more than once.
	newTimer func(f func()) leaseTimer
}

// leaseTimer calls its function at a time of a leaseClock. It is set and stopped by one goroutine.
type leaseTimer interface {
	set(at time.Duration)
	stop()
}

// clock is that of all sessions, so that they renew at the same moments: see renewalDelay.
var clock = newLeaseClock()

// monotonicClock returns a clock that stops while the machine is suspended.
func monotonicClock() leaseClock {
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	return leaseClock{now, func(f func()) leaseTimer { return newMonotonicTimer(now, f) }}
}

// monotonicTimer is a timer of package time, which stops with the machine.
type monotonicTimer struct {
	now   func() time.Duration
	timer *time.Timer
}

func newMonotonicTimer(now func() time.Duration, f func()) leaseTimer {
	timer := time.AfterFunc(time.Hour, f)
	timer.Stop()
	return &monotonicTimer{now, timer}
}

func (m *monotonicTimer) set(at time.Duration) { m.timer.Reset(at - m.now()) }

func (m *monotonicTimer) stop() { m.timer.Stop() }
