package sim

import (
	"math/bits"

	"github.com/conclave-dev/conclave/internal/election"
)

// queue holds what is to happen, in the order of time; what is due at the same
// moment comes out in the order in which it went in.
//
// It is a radix heap: time never goes back, so an event waits in the bucket of
// the highest bit in which its moment differs from the present one, and moves
// only to lower buckets.
type queue struct {
	now     election.Tick
	size    int
	buckets [64][]event
	// head is how many events of bucket 0 have been taken.
	head int
}

type eventKind uint8

const (
	// deliver the message in slot.
	deliver eventKind = iota
	// undelivered: tell the sender so.
	undelivered
	// wake a process for its deadline.
	wake
	// fault: carry out the next step of the plan.
	fault
	// noticed: a process notices that peer's process has ended.
	noticed
	// stopped: the application of a process has stopped.
	stopped
	// adopted: a process takes over a member list.
	adopted
	// call a process to start an election.
	call
)

type event struct {
	at   election.Tick
	kind eventKind
	who  election.ID
	peer election.ID
	// slot is a message's place in the slab, a life, or a version.
	slot uint32
}

func (q *queue) push(e event) {
	b := bits.Len64(uint64(e.at ^ q.now))
	q.buckets[b] = append(q.buckets[b], e)
	q.size++
}

// pop takes out the earliest event, and moves the present to its moment.
func (q *queue) pop() (event, bool) {
	if q.size == 0 {
		return event{}, false
	}
	if q.head == len(q.buckets[0]) {
		q.refill()
	}
	e := q.buckets[0][q.head]
	q.head++
	q.size--
	return e, true
}

// refill moves the present to the earliest moment that is left.
func (q *queue) refill() {
	q.buckets[0], q.head = q.buckets[0][:0], 0
	b := 1
	for len(q.buckets[b]) == 0 {
		b++
	}
	full := q.buckets[b]
	earliest := full[0].at
	for _, e := range full[1:] {
		earliest = min(earliest, e.at)
	}
	q.now = earliest
	for _, e := range full {
		to := bits.Len64(uint64(e.at ^ earliest))
		q.buckets[to] = append(q.buckets[to], e)
	}
	q.buckets[b] = full[:0]
}

// reset empties the queue and keeps its memory.
func (q *queue) reset() {
	for i := range q.buckets {
		q.buckets[i] = q.buckets[i][:0]
	}
	q.now, q.size, q.head = 0, 0, 0
}

// slab keeps the messages in flight; places are used again.
type slab struct {
	messages []election.Message
	free     []uint32
}

func (s *slab) put(m *election.Message) uint32 {
	if last := len(s.free) - 1; last >= 0 {
		slot := s.free[last]
		s.free = s.free[:last]
		s.messages[slot] = *m
		return slot
	}
	s.messages = append(s.messages, *m)
	return uint32(len(s.messages) - 1)
}

func (s *slab) take(slot uint32) election.Message {
	m := s.messages[slot]
	s.messages[slot].List = nil
	s.free = append(s.free, slot)
	return m
}

func (s *slab) reset() { s.messages, s.free = s.messages[:0], s.free[:0] }
