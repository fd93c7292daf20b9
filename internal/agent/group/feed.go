package group

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// remembered is how many changes a watcher may be behind.
const remembered = 256

// feed is the latest states of a group, numbered from 1.
type feed struct {
	life uint32

	mu     sync.Mutex
	last   uint64
	states [remembered]Leader
	// more is closed with the next change.
	more   chan struct{}
	closed bool
}

func newFeed(life uint32) *feed { return &feed{life: life, more: make(chan struct{})} }

// append adds a state, unless nothing has changed.
func (f *feed) append(state Leader) {
	state.RemainingMillis = nil
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.last > 0 && f.states[f.last%remembered] == state {
		return
	}
	f.last++
	f.states[f.last%remembered] = state
	close(f.more)
	f.more = make(chan struct{})
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.more)
	}
}

// Watcher is somebody who wants to know of every change.
type Watcher struct {
	feed *feed
	seen uint64
}

// Watch starts with the change behind after, if that is remembered, and with
// the present state otherwise.
func (g *Group) Watch(after string) *Watcher {
	f := g.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &Watcher{feed: f, seen: max(f.last, 1) - 1}
	if n, ok := f.number(after); ok && n <= f.last && f.last-n < remembered {
		w.seen = n
	}
	return w
}

// number finds out which change of this life an ID names.
func (f *feed) number(id string) (uint64, bool) {
	life, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	return n, err == nil && life == fmt.Sprintf("%08x", f.life)
}

// Next waits for the next change.
func (w *Watcher) Next(ctx context.Context) (Change, error) {
	f := w.feed
	for {
		f.mu.Lock()
		more, closed := f.more, f.closed
		switch {
		case f.last-w.seen > remembered:
			f.mu.Unlock()
			return Change{}, ErrWatcherTooSlow
		case w.seen < f.last:
			w.seen++
			change := Change{ID: fmt.Sprintf("%08x-%d", f.life, w.seen), Leader: f.states[w.seen%remembered]}
			f.mu.Unlock()
			return change, nil
		}
		f.mu.Unlock()
		if closed {
			return Change{}, ErrClosed
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Change{}, ctx.Err()
		}
	}
}
