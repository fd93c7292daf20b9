package group

import (
	"context"
	"sync"
)

// feed has the states of a group, each with the next one. So a watcher that lags behind misses none, and those that all
// have read are freed.
type feed struct {
	mu sync.Mutex
	// latest is the last state, or no state at first, and before is that before it.
	before, latest *change
	closed         bool
}

type change struct {
	state Leader
	// followed is closed when next is set, or when the group is left: then there is none.
	followed chan struct{}
	next     *change
}

func newFeed() *feed {
	none := &change{followed: make(chan struct{})}
	return &feed{before: none, latest: none}
}

func (f *feed) append(state Leader) {
	state.RemainingMillis = nil
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.latest.state == state {
		return
	}
	f.before, f.latest.next = f.latest, &change{state: state, followed: make(chan struct{})}
	close(f.latest.followed)
	f.latest = f.latest.next
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.latest.followed)
	}
}

// Watcher reads the changes of a group one after the other.
type Watcher struct{ read *change }

// Watch returns a Watcher that starts with the current state.
func (g *Group) Watch() *Watcher {
	g.feed.mu.Lock()
	defer g.feed.mu.Unlock()
	return &Watcher{g.feed.before}
}

// Next waits for the next change.
func (w *Watcher) Next(ctx context.Context) (Leader, error) {
	select {
	case <-w.read.followed:
	case <-ctx.Done():
		return Leader{}, ctx.Err()
	}
	if w.read.next == nil {
		return Leader{}, ErrClosed
	}
	w.read = w.read.next
	return w.read.state, nil
}
