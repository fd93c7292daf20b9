package group

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// feedSize is the number of changes by which a watcher may lag behind.
const feedSize = 256

// feed stores the latest states of a group, numbered from 1.
type feed struct {
	life uint32

	mu   sync.Mutex
	last uint64
	// states grows up to feedSize; then the oldest state is replaced.
	states  []Leader
	changed chan struct{}
	closed  bool
}

func newFeed(life uint32) *feed { return &feed{life: life, changed: make(chan struct{})} }

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

// Watch returns a Watcher that starts after the change with the given ID. If that
// change isn't stored, it starts with the current state.
func (g *Group) Watch(after string) *Watcher {
	f := g.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &Watcher{feed: f, seen: max(f.last, 1) - 1}
	if n, ok := f.parseID(after); ok && n <= f.last && f.last-n < feedSize {
		w.seen = n
	}
	return w
}

// parseID returns the number of the change that an ID of this feed names.
func (f *feed) parseID(id string) (uint64, bool) {
	life, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	return n, err == nil && life == fmt.Sprintf("%08x", f.life)
}

// Next waits for the next change.
func (w *Watcher) Next(ctx context.Context) (Change, error) {
	f := w.feed
	for {
		f.mu.Lock()
		changed, closed := f.changed, f.closed
		switch {
		case f.last-w.seen > feedSize:
			f.mu.Unlock()
			return Change{}, ErrWatcherTooSlow
		case w.seen < f.last:
			w.seen++
			change := Change{ID: fmt.Sprintf("%08x-%d", f.life, w.seen), Leader: *f.state(w.seen)}
			f.mu.Unlock()
			return change, nil
		}
		f.mu.Unlock()
		if closed {
			return Change{}, ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Change{}, ctx.Err()
		}
	}
}
