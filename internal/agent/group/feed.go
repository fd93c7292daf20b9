package group

import (
	"context"
	"sync"
)

// feedSize is the number of changes by which a watcher may lag behind.
const feedSize = 256

// feed stores the latest states of a group, numbered from 1.
type feed struct {
	mu   sync.Mutex
	last uint64
	// states grows up to feedSize; then the oldest state is replaced.
	states  []Leader
	changed chan struct{}
	closed  bool
}

func newFeed() *feed { return &feed{changed: make(chan struct{})} }

func (f *feed) append(state Leader) {
	state.RemainingMillis = nil
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.last > 0 && *f.state(f.last) == state {
		return
	}
	f.last++
	if len(f.states) < feedSize {
		f.states = append(f.states, state)
	} else {
		*f.state(f.last) = state
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// state returns the place of the state with a number from 1 to last.
func (f *feed) state(number uint64) *Leader { return &f.states[(number-1)%feedSize] }

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.changed)
	}
}

// Watcher reads the changes of a group one after the other.
type Watcher struct {
	feed *feed
	seen uint64
}

// Watch returns a Watcher that starts with the current state.
func (g *Group) Watch() *Watcher {
	f := g.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Watcher{feed: f, seen: max(f.last, 1) - 1}
}

// Next waits for the next change.
func (w *Watcher) Next(ctx context.Context) (Leader, error) {
	f := w.feed
	for {
		f.mu.Lock()
		changed, closed := f.changed, f.closed
		switch {
		case f.last-w.seen > feedSize:
			f.mu.Unlock()
			return Leader{}, ErrWatcherTooSlow
		case w.seen < f.last:
			w.seen++
			state := *f.state(w.seen)
			f.mu.Unlock()
			return state, nil
		}
		f.mu.Unlock()
		if closed {
			return Leader{}, ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Leader{}, ctx.Err()
		}
	}
}
