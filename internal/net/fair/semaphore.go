package fair

import (
	"context"
	"sync"
)

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

// NewSemaphore returns a semaphore with a number of slots, of which a user can have at most
// perUser at the same time.
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
