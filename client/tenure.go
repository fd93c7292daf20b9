package client

import (
	"context"
	"errors"
	"time"
)

// tenure is one call of the function.
type tenure struct {
	term, token uint64

	// ctx is the function's context.
	ctx context.Context
	end context.CancelCauseFunc
	// until is the end of the lease on clock. leaseTimer then ends ctx, even if all other
	// goroutines are blocked. Both are zero if there is no lease.
	clock      leaseClock
	until      time.Duration
	leaseTimer leaseTimer
	// renewInterval is a fraction of the lease, so that some renewals may fail. Without a
	// lease, renewals show the agent that this process doesn't hang.
	renewInterval time.Duration
	// lost is set once the tenure has ended, maybe after the function was asked to stop.
	lost bool
	// returned receives the outcome when the function has returned.
	returned chan outcome
}

// outcome is the result of a function.
type outcome struct {
	err error
	// voluntary is set if the function returned before its context ended. Otherwise, cause is why the context ended.
	voluntary bool
	cause     error
}

// aliveInterval is the interval of renewals without a lease.
const aliveInterval = time.Second

var errGoexit = errors.New("the function called runtime.Goexit")

func startTenure(
	parent context.Context, clock leaseClock, term, token uint64, until time.Duration,
	lead func(context.Context, uint64) error,
) *tenure {
	ctx, end := context.WithCancelCause(parent)
	t := &tenure{term: term, token: token, ctx: ctx, end: end, clock: clock, renewInterval: aliveInterval, returned: make(
		chan outcome, 1)}
	t.renew(until)
	go func() {
		o := outcome{err: errGoexit}
		defer func() {
			o.cause = context.Cause(ctx)
			o.voluntary = o.cause == nil
			t.returned <- o
		}()
		o.err = lead(ctx, token)
	}()
	return t
}

// renew extends the lease. It never shortens it: a later response that took longer, or came
// when leases had become shorter, may have an earlier end, but the former response remains true.
func (t *tenure) renew(until time.Duration) {
	if until == 0 { // there is no lease
		return
	}
	t.renewInterval = max(time.Millisecond, (until-t.clock.now())/4)
	if until <= t.until {
		return
	}
	t.until = until
	if t.leaseTimer == nil {
		t.leaseTimer = t.clock.newTimer(func() { t.end(ErrNotRenewed) })
	}
	t.leaseTimer.set(until)
}

// revoked reports whether the function's context has ended.
func (t *tenure) revoked() bool { return t.ctx.Err() != nil }

// over reports whether the tenure has ended, so that there is nothing to renew. A function
// whose context has ended for another reason may continue until it returns.
func (t *tenure) over() bool {
	cause := context.Cause(t.ctx)
	return t.lost || errors.Is(cause, ErrLost) || errors.Is(cause, ErrNotRenewed) || errors.Is(cause, ErrAgentGone)
}

// close releases the resources of the tenure after the function has returned.
func (t *tenure) close() {
	t.end(nil)
	if t.leaseTimer != nil {
		t.leaseTimer.stop()
	}
}
