package client

import "time"

const (
	// marginShare is the share of the lease by which a deadline precedes its end, and maxMargin bounds that.
	marginShare = 8
	maxMargin   = 2 * time.Second
	// silenceMax is the time without a renewal after which the deadline comes if there is no lease. The client renews each
	// second, and the agent gives up the office after four.
	silenceMax = 3 * time.Second
)

// Deadline computes when something must have ended that acts in one tenure, such as another
// process, or a part of this one that doesn't end with a context. It has no clock: its times
// are those of Renewal. The zero value is ready for use.
type Deadline struct {
	margin time.Duration
	// leaseEnd is when the tenure ends without another renewal, and led when the last request was sent to which the agent
	// responded that this process leads.
	leaseEnd, led time.Duration
	// leased is set if there is a lease. Then a response without its end, as of an older agent or while the office
	// changes, extends nothing.
	leased bool
	// drain is how long it may take to stop, and drainEnd when it must have stopped, 0 unless it was asked to.
	drain, drainEnd time.Duration
}

// Renew handles a renewal of the tenure that isn't the last one. It leaves Stopping to the caller.
func (d *Deadline) Renew(r Renewal) {
	until := r.Until
	switch {
	case until != 0:
		d.leased = true
	case !d.leased:
		until = r.Sent + silenceMax
	}
	if until > d.leaseEnd { // leases become longer and shorter
		d.leaseEnd, d.margin = until, min((until-r.Sent)/marginShare, maxMargin)
	}
	d.drain = r.DrainTimeout
	if !r.Stopping {
		d.led = max(d.led, r.Sent)
	}
}

// Led returns when the last request was sent to which the agent responded that this process
// leads. If the agent hands the office over, it has decided so after this time.
func (d *Deadline) Led() time.Duration { return d.led }

// Stop gives the drain timeout from a time on. The earliest end counts.
func (d *Deadline) Stop(from time.Duration) {
	if end := from + d.drain; !d.IsStopping() || end < d.drainEnd {
		d.drainEnd = end
	}
}

// IsStopping reports whether a stop was requested.
func (d *Deadline) IsStopping() bool { return d.drainEnd != 0 }

// At returns the deadline. It precedes the end of the lease or of the drain timeout by Margin.
func (d *Deadline) At() time.Duration {
	end := d.leaseEnd
	if d.IsStopping() {
		end = min(end, d.drainEnd)
	}
	return end - d.margin
}

// Margin returns a fraction of the lease.
func (d *Deadline) Margin() time.Duration { return d.margin }
