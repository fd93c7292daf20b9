package client

import (
	"testing"
	"time"
)

func TestDeadline(t *testing.T) {
	const second = time.Second
	const lease, drain = 800 * time.Millisecond, 2 * second
	const margin = lease / marginShare
	leased := func(sent time.Duration) Renewal {
		return Renewal{Sent: sent, Until: sent + lease, Lease: lease, DrainTimeout: drain}
	}
	stopping := func(r Renewal) Renewal {
		r.Stopping = true
		return r
	}
	for name, test := range map[string]struct {
		renewals []Renewal
		drains   bool
		want     time.Duration
	}{
		"end of the lease": {renewals: []Renewal{leased(second)}, want: second + lease - margin},
		"renewed":          {renewals: []Renewal{leased(second), leased(2 * second)}, want: 2*second + lease - margin},
		"a late response shortens nothing": {renewals: []Renewal{leased(2 * second), leased(second)}, want: 2*second +
			lease - margin},
		"stopping, and not renewed": {renewals: []Renewal{leased(second)}, drains: true, want: second + lease - margin},
		"stopping, with renewals": {
			renewals: []Renewal{leased(second), stopping(leased(5 * second))}, want: second + drain - margin,
		},
		"no lease": {renewals: []Renewal{{Sent: second, DrainTimeout: drain}}, want: second +
			silenceMax - silenceMax/marginShare},
		"no lease, stopping": {
			renewals: []Renewal{{Sent: second, DrainTimeout: drain}}, drains: true,
			want: second + drain - silenceMax/marginShare,
		},
		"an answer without the lease's end": {
			renewals: []Renewal{leased(second), {Sent: 2 * second, Stopping: true, DrainTimeout: drain}},
			want:     second + lease - margin,
		},
		"leases become longer": {
			renewals: []Renewal{leased(second), {Sent: 2 * second, Until: 6 * second}}, want: 6*second - 4*second/marginShare,
		},
		"leases become shorter": {
			renewals: []Renewal{{Sent: second, Until: 5 * second}, leased(4 * second), leased(5 * second)},
			want:     5*second + lease - margin,
		},
		"a long lease has a bounded margin": {
			renewals: []Renewal{{Sent: second, Until: 61 * second, Lease: 60 * second}}, want: 59 * second,
		},
		"the drain timeout starts only once": {
			renewals: []Renewal{leased(second), stopping(leased(2 * second)), stopping(leased(5 * second))}, drains: true,
			want: second + drain - margin,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d Deadline
			for _, r := range test.renewals {
				d.Renew(r)
				if r.Stopping {
					d.Stop(d.Led())
				}
			}
			if test.drains {
				d.Stop(d.Led())
			}
			if got := d.At(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
