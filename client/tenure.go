package client

import (
	"context"
	"errors"
	"time"
)

// tenure is one run of the function, from the moment when it may act.
type tenure struct {
	term, token uint64

	// ctx is the function's.
	ctx context.Context
	end context.CancelCauseFunc
	// until is when the lease ends, and lease the timer that ends ctx then, without
	// anybody's help. Both are zero where there is no lease.
	until time.Time
	lease *time.Timer
	// pace is the time between two renewals: there is time for some that fail.
	pace time.Duration
	// ended has the outcome when the function has returned.
	ended chan outcome
}

// outcome is what became of a function.
type outcome struct {
	err error
	// leading: the function returned before it was told to. Otherwise, cause is why it was.
	leading bool
	cause   error
}

var errExited = errors.New("the function ended its goroutine instead of returning")

func begin(parent context.Context, term, token uint64, until time.Time, lead func(context.Context, uint64) error) *tenure {
	ctx, end := context.WithCancelCause(parent)
	t := &tenure{term: term, token: token, ctx: ctx, end: end, ended: make(chan outcome, 1)}
	t.renew(until)
	go func() {
		o := outcome{err: errExited}
		defer func() {
			o.cause = context.Cause(ctx)
			o.leading = o.cause == nil
			t.ended <- o
		}()
		o.err = lead(ctx, token)
	}()
	return t
}

// renew puts the end of the lease off. That the tenure lasts at least until then
// stays true when a later answer, which took longer, promises less.
func (t *tenure) renew(until time.Time) {
	if !until.After(t.until) {
		return
	}
	t.until = until
	left := time.Until(until)
	t.pace = left / 4
	if t.lease == nil {
		t.lease = time.AfterFunc(left, func() { t.end(ErrNotRenewed) })
		return
	}
	t.lease.Reset(left)
}

// told reports whether the function was told to return.
func (t *tenure) told() bool { return t.ctx.Err() != nil }

// close frees what the tenure held, when the function has returned.
func (t *tenure) close() {
	t.end(nil)
	if t.lease != nil {
		t.lease.Stop()
	}
}
