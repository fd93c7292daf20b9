package group

import "context"

// call runs a function on the goroutine of run, and waits until its consequences
// are published. If it returns an error, the function may still run later.
func (g *Group) call(ctx context.Context, act func()) error {
	acted := make(chan struct{})
	request := func() {
		act()
		g.notices = append(g.notices, func() { close(acted) })
	}
	select {
	case g.inbox <- request:
	case <-ctx.Done():
		return ctx.Err()
	case <-g.quit:
		return ErrClosed
	}
	select {
	case <-acted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-g.done:
		return ErrClosed
	}
}

// try is call for a function that can fail.
func (g *Group) try(ctx context.Context, act func() error) error {
	var failed error
	if err := g.call(ctx, func() { failed = act() }); err != nil {
		return err // The function may still set failed.
	}
	return failed
}

// AwaitRoundTrip returns when the goroutine of run has carried out everything that was
// enqueued before.
func (g *Group) AwaitRoundTrip(ctx context.Context) error { return g.call(ctx, func() {}) }
