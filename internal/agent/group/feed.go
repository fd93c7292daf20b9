package group

import (
	"context"
	"sync"
)

// feed has items, each with the next one. So a watcher that lags behind misses none, and those that all have read are
// freed.
type feed[T any] struct {
	mu sync.Mutex
	// latest is the last item, or none at first, and before is that before it.
	before, latest *entry[T]
	// reason is why the feed has ended, nil if it hasn't.
	reason error
}

type entry[T any] struct {
	item T
	// followed is closed when next is set, or when the feed has ended: then there is none.
	followed chan struct{}
	next     *entry[T]
}

func newFeed[T any]() *feed[T] {
	none := &entry[T]{followed: make(chan struct{})}
	return &feed[T]{before: none, latest: none}
}

// append adds an item, unless the feed has ended.
func (f *feed[T]) append(item T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reason != nil {
		return
	}
	f.before, f.latest.next = f.latest, &entry[T]{item: item, followed: make(chan struct{})}
	close(f.latest.followed)
	f.latest = f.latest.next
}

// close ends the feed. The first reason counts.
func (f *feed[T]) close(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reason == nil {
		f.reason = reason
		close(f.latest.followed)
	}
}

// watch returns a watcher that starts with the latest item.
func (f *feed[T]) watch() *Watcher[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Watcher[T]{f, f.before}
}

// Watcher reads the items of a feed one after the other.
type Watcher[T any] struct {
	feed *feed[T]
	read *entry[T]
}

// Next waits for the next item. When all are read, it returns the reason why the feed has ended.
func (w *Watcher[T]) Next(ctx context.Context) (item T, err error) {
	select {
	case <-w.read.followed:
	case <-ctx.Done():
		return item, ctx.Err()
	}
	if w.read.next == nil {
		return item, w.feed.reason
	}
	w.read = w.read.next
	return w.read.item, nil
}

// Watch returns a watcher of the states of the group, which starts with the current one.
func (g *Group) Watch() *Watcher[Leader] { return g.feed.watch() }
