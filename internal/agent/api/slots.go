package api

import (
	"fmt"
	"sync"
)

// slots limits the number of streams: in total, so that they fit in memory, and for each
// group, so that an application that forgets to close its streams doesn't affect the other
// groups of the pod.
type slots struct {
	total, perGroup int

	mu   sync.Mutex
	all  int
	used map[string]int
}

func newSlots(total, perGroup int) *slots {
	return &slots{total: total, perGroup: perGroup, used: map[string]int{}}
}

// acquire acquires a slot for a stream of a group, if the agent is in this number of
// groups. Each group has an equal share, and at most perGroup slots.
func (s *slots) acquire(group string, groups int) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := min(s.perGroup, s.total/max(1, groups))
	switch {
	case s.used[group] >= share:
		return nil, fmt.Errorf("too many open streams: at most %d are allowed", share)
	case s.all >= s.total: // There were fewer groups when other streams began.
		return nil, fmt.Errorf("too many open streams: at most %d are allowed in all groups", s.total)
	}
	s.all++
	s.used[group]++
	return sync.OnceFunc(func() { s.release(group) }), nil
}

func (s *slots) release(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.used[group]--; s.used[group] == 0 {
		delete(s.used, group)
	}
}
