package controllerruntime

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/client"
)

const (
	lease = 800 * time.Millisecond
	drain = 2 * time.Second
)

// renewal is a renewal in a group with a lease.
func renewal(token uint64, sent time.Duration) client.Renewal {
	return client.Renewal{Token: token, Sent: sent, Received: sent + 5*time.Millisecond, Until: sent + lease, Lease: lease, DrainTimeout: drain}
}

func stopping(r client.Renewal) client.Renewal {
	r.Stopping = true
	return r
}

func TestDeadline(t *testing.T) {
	const second = time.Second
	margin := lease / marginShare
	for name, test := range map[string]struct {
		renewals []client.Renewal
		drains   bool
		want     time.Duration
	}{
		"end of the lease":                   {renewals: []client.Renewal{renewal(1, second)}, want: second + lease - margin},
		"renewed":                            {renewals: []client.Renewal{renewal(1, second), renewal(1, 2*second)}, want: 2*second + lease - margin},
		"a late response shortens nothing":   {renewals: []client.Renewal{renewal(1, 2*second), renewal(1, second)}, want: 2*second + lease - margin},
		"stopping, and not renewed":          {renewals: []client.Renewal{renewal(1, second)}, drains: true, want: second + lease - margin},
		"stopping, with renewals":            {renewals: []client.Renewal{renewal(1, second), stopping(renewal(1, 5*second))}, want: second + drain - margin},
		"a new tenure has a deadline anew":   {renewals: []client.Renewal{stopping(renewal(1, second)), renewal(2, 9*second)}, want: 9*second + lease - margin},
		"no lease":                           {renewals: []client.Renewal{{Token: 1, Sent: second, DrainTimeout: drain}}, want: second + silenceMax - silenceMax/marginShare},
		"no lease, stopping":                 {renewals: []client.Renewal{{Token: 1, Sent: second, DrainTimeout: drain}}, drains: true, want: second + drain - silenceMax/marginShare},
		"an answer without the lease's end":  {renewals: []client.Renewal{renewal(1, second), {Token: 1, Sent: 2 * second, Stopping: true, DrainTimeout: drain}}, want: second + lease - margin},
		"a long lease has a bounded margin":  {renewals: []client.Renewal{{Token: 1, Sent: second, Until: 61 * second, Lease: 60 * second}}, want: 59 * second},
		"the drain timeout starts only once": {renewals: []client.Renewal{renewal(1, second), stopping(renewal(1, 2*second)), stopping(renewal(1, 5*second))}, drains: true, want: second + drain - margin},
	} {
		t.Run(name, func(t *testing.T) {
			var d deadline
			for _, r := range test.renewals {
				d.renew(r)
			}
			if test.drains {
				d.drain()
			}
			if got := d.at(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
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
		if got, want := <-expired, 600*time.Millisecond+lease-lease/marginShare; got != want {
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
