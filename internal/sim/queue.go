package sim

import (
	"math/bits"

	"github.com/conclave-dev/conclave/internal/election"
)

// queue has the pending events in the order of time. Events of the same time are
// popped in the order in which they were pushed.
//
// It is a radix heap: time never decreases, so an event waits in the bucket of the
// highest bit in which its time differs from now, and moves only to lower buckets.
type queue struct {
	now     election.Tick
	size    int
	buckets [64]bucket
	// head is the number of events that were popped from bucket 0.
	head int
	// spare are the chunks that no bucket uses.
	spare []*chunk
}

// bucket has len events in chunks, so that a queue with millions of events, which move from
// bucket to bucket, doesn't copy them in order to grow. Chunks that were emptied are nil.
type bucket struct {
	chunks []*chunk
	len    int
}

const chunkLen = 256

type chunk [chunkLen]event

type eventKind uint8

const (
	// eventDelivery delivers the message in slot.
	eventDelivery eventKind = iota
	// eventUndelivered notifies the sender that the message in slot was not delivered.
	eventUndelivered
	// eventTimer wakes a process at its deadline.
	eventTimer
	// eventAction executes an action of the schedule.
	eventAction
	// eventPeerEnded notifies a process that an incarnation of peer has ended.
	eventPeerEnded
	// eventAppStopped notifies a process that its application has stopped.
	eventAppStopped
	// eventRoster delivers a member list to a process.
	eventRoster
	// eventReserved ends the write of a reservation.
	eventReserved
	// eventConnected tells a replica of the operator the identity of a process.
	eventConnected
	// eventInitiate makes a process start an election, or recover.
	eventInitiate
)

// event is something that happens to a process at a given time.

type event struct {
	at      election.Tick
	kind    eventKind
	process election.ID
	// peer depends on the kind: another process, the sender's incarnation, or a replica of the operator.
	peer election.ID
	// slot depends on the kind: the slot of a message in the slab, an incarnation, a
	// number of tenures, or the index of an action or of a member list.
	slot uint32
}

func (q *queue) push(e event) {
	q.put(&e)
	q.size++
}

func (q *queue) put(e *event) {
	b := &q.buckets[bits.Len64(uint64(e.at^q.now))]
	if b.len == len(b.chunks)*chunkLen {
		b.chunks = append(b.chunks, q.newChunk())
	}
	b.chunks[b.len/chunkLen][b.len%chunkLen] = *e
	b.len++
}

func (q *queue) newChunk() *chunk {
	last := len(q.spare) - 1
	if last < 0 {
		return new(chunk)
	}
	c := q.spare[last]
	q.spare = q.spare[:last]
	return c
}

// take returns event i of a bucket. After the last event of a chunk, the chunk is spare.
func (q *queue) take(b *bucket, i int) event {
	c := b.chunks[i/chunkLen]
	e := c[i%chunkLen]
	if i%chunkLen == chunkLen-1 {
		q.spare, b.chunks[i/chunkLen] = append(q.spare, c), nil
	}
	return e
}

// pop removes and returns the earliest event, and sets now to its time.
func (q *queue) pop() (event, bool) {
	if q.size == 0 {
		return event{}, false
	}
	if q.head == q.buckets[0].len {
		q.refill()
	}
	e := q.take(&q.buckets[0], q.head)
	q.head++
	q.size--
	return e, true
}

// refill sets now to the earliest time of the remaining events and moves those to lower buckets.
func (q *queue) refill() {
	q.clear(&q.buckets[0])
	q.head = 0
	b := &q.buckets[1]
	for n := 1; b.len == 0; n++ {
		b = &q.buckets[n]
	}
	q.now = b.chunks[0][0].at
	for i := range b.len {
		q.now = min(q.now, b.chunks[i/chunkLen][i%chunkLen].at)
	}
	for i := range b.len {
		e := q.take(b, i)
		q.put(&e)
	}
	q.clear(b)
}

func (q *queue) clear(b *bucket) {
	for _, c := range b.chunks {
		if c != nil {
			q.spare = append(q.spare, c)
		}
	}
	b.chunks, b.len = b.chunks[:0], 0
}

// reset removes all events and retains the memory.
func (q *queue) reset() {
	for i := range q.buckets {
		q.clear(&q.buckets[i])
	}
	q.now, q.size, q.head = 0, 0, 0
}

// slab stores the messages in flight and reuses their slots.
//
// Each page is twice as large as the one before, and pages never move. Growing therefore copies nothing and leaves no
// garbage, which matters with millions of messages in flight.
type slab struct {
	pages [][]election.Message
	// used is the number of slots that were ever used.
	used uint32
	free []uint32
}

// firstPage is the binary logarithm of the size of the first page.
const firstPage = 6

// at returns the location of a slot: page k has 1<<(firstPage+k) messages.
func (s *slab) at(slot uint32) *election.Message {
	n := slot + 1<<firstPage
	page := bits.Len32(n) - firstPage - 1
	return &s.pages[page][n-1<<(firstPage+page)]
}

func (s *slab) put(m *election.Message) uint32 {
	if last := len(s.free) - 1; last >= 0 {
		slot := s.free[last]
		s.free = s.free[:last]
		*s.at(slot) = *m
		return slot
	}
	if s.used == 1<<(firstPage+len(s.pages))-1<<firstPage {
		s.pages = append(s.pages, make([]election.Message, 1<<(firstPage+len(s.pages))))
	}
	slot := s.used
	s.used++
	*s.at(slot) = *m
	return slot
}

// take removes and returns the message of a slot.
func (s *slab) take(slot uint32) election.Message {
	stored := s.at(slot)
	m := *stored
	stored.List = nil
	s.free = append(s.free, slot)
	return m
}

func (s *slab) reset() { s.used, s.free = 0, s.free[:0] }
