package controllerruntime

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/client"
)

const (
	leaseTime = 800 * time.Millisecond
	drain     = 2 * time.Second
)

// renewal is a renewal in a group with a lease.
func renewal(token uint64, sent time.Duration) client.Renewal {
	return client.Renewal{
		Token: token, Sent: sent, Received: sent + 5*time.Millisecond, Until: sent + leaseTime, Lease: leaseTime,
		DrainTimeout: drain,
	}
}

// TestNewTenureHasItsOwnDeadline: that of a former tenure, which was to stop, doesn't count.
func TestNewTenureHasItsOwnDeadline(t *testing.T) {
	l := newLimit(func() {})
	defer l.stop()
	first := renewal(1, time.Second)
	first.Stopping = true
	l.renew(first)
	l.renew(renewal(2, 9*time.Second))
	if got, want := l.deadline.At(), 9*time.Second+leaseTime-leaseTime/8; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLimitExpires: it expires at the deadline of the last renewal, and not after the tenure.
func TestLimitExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, expired := time.Now(), make(chan time.Duration, 1)
		l := newLimit(func() { expired <- time.Since(start) })
		renew := func(r client.Renewal) {
			time.Sleep(time.Until(start.Add(r.Received))) // The fake clock moves on.
			l.renew(r)
		}
		renew(renewal(1, 0))
		renew(renewal(1, 600*time.Millisecond))
		if got, want := <-expired, 600*time.Millisecond+leaseTime-leaseTime/8; got != want {
			t.Errorf("expired after %v, want %v", got, want)
		}
		renew(renewal(2, 3*time.Second))
		renew(client.Renewal{Token: 2, Received: 3100 * time.Millisecond, Ended: true})
		time.Sleep(time.Minute)
		if len(expired) > 0 {
			t.Errorf("expired after %v, want not after the end of the tenure", <-expired)
		}
		l.stop()
	})
}
