// Package fair shares what is limited among users, such as the namespaces of tenants: a user
// that wants much doesn't delay the others. The users take turns. This is the round robin of fair
// queuing, as in Kubernetes' API Priority and Fairness, but each user has a queue of its own.
package fair

import (
	"context"
	"slices"
	"sync"
)

// Queue is a queue of items that belong to users. The users take turns, and the items of a user
// keep their order. So an item that is the first one of its user waits for at most one item of
// each other user. The zero value is an empty queue.
type Queue[U comparable, T any] struct {
	items map[U][]T
	// turns are the users that have items. The first one is next.
	turns []U
	size  int
}

// Len returns the number of items.
func (q *Queue[U, T]) Len() int { return q.size }

// Push adds an item.
func (q *Queue[U, T]) Push(user U, item T) {
	if q.items == nil {
		q.items = map[U][]T{}
	}
	if len(q.items[user]) == 0 {
		q.turns = append(q.turns, user)
	}
	q.items[user] = append(q.items[user], item)
	q.size++
}

// Pop removes and returns the next item of a user that may have it. It returns false if there is none.
func (q *Queue[U, T]) Pop(may func(U) bool) (item T, ok bool) {
	i := slices.IndexFunc(q.turns, may)
	if i < 0 {
		return item, false
	}
	user := q.turns[i]
	item = q.items[user][0]
	q.turns = slices.Delete(q.turns, i, i+1)
	q.remove(user, 0)
	if len(q.items[user]) > 0 {
		q.turns = append(q.turns, user)
	}
	return item, true
}

// Remove removes an item of a user, if it is in the queue.
func (q *Queue[U, T]) Remove(user U, is func(T) bool) {
	i := slices.IndexFunc(q.items[user], is)
	if i < 0 {
		return
	}
	q.remove(user, i)
	if len(q.items[user]) == 0 {
		q.turns = slices.DeleteFunc(q.turns, func(other U) bool { return other == user })
	}
}

// remove removes an item of a user. It leaves the turns as they are.
func (q *Queue[U, T]) remove(user U, i int) {
	q.size--
	if i == 0 {
		// A user may have thousands of items, and the first one is the usual case.
		var none T
		q.items[user][0] = none // The array continues to refer to it.
		q.items[user] = q.items[user][1:]
	} else {
		q.items[user] = slices.Delete(q.items[user], i, i+1)
	}
	if len(q.items[user]) == 0 {
		delete(q.items, user)
	}
}

// Semaphore has slots. The users that wait for one take turns.
type Semaphore[U comparable] struct {
	total, perUser int

	mu      sync.Mutex
	used    int
	usedBy  map[U]int
	waiting Queue[U, *waiter[U]]
}

// waiter waits for a slot. Its channel is closed when it has one.
type waiter[U comparable] struct {
	user U
	has  chan struct{}
}

// NewSemaphore returns a semaphore with a number of slots, of which a user can have at most perUser at the same time.
func NewSemaphore[U comparable](total, perUser int) *Semaphore[U] {
	return &Semaphore[U]{total: total, perUser: perUser, usedBy: map[U]int{}}
}

// Acquire waits until there is a slot for the user, which the caller must release once. It returns
// an error if the context ends before.
func (s *Semaphore[U]) Acquire(ctx context.Context, user U) (release func(), err error) {
	w := &waiter[U]{user: user, has: make(chan struct{})}
	release = func() { s.release(user) }
	s.mu.Lock()
	s.waiting.Push(user, w)
	s.assign()
	s.mu.Unlock()
	select {
	case <-w.has:
		return release, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.has: // At the same moment.
		return release, nil
	default:
		s.waiting.Remove(user, func(other *waiter[U]) bool { return other == w })
		return nil, ctx.Err()
	}
}

func (s *Semaphore[U]) release(user U) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.usedBy[user]--; s.usedBy[user] == 0 {
		delete(s.usedBy, user)
	}
	s.assign()
}

// assign gives the free slots to those that wait. The caller holds the lock.
func (s *Semaphore[U]) assign() {
	for s.used < s.total {
		next, ok := s.waiting.Pop(func(user U) bool { return s.usedBy[user] < s.perUser })
		if !ok {
			return
		}
		s.used++
		s.usedBy[next.user]++
		close(next.has)
	}
}
