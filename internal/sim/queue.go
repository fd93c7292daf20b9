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
	// head is the number of events that were popped from the first slice of bucket 0.
	head  int
	spare []*chunk
}

// bucket has its first events in a slice and further ones in chunks. A small queue
// never needs a chunk. A queue with millions of events, which move from bucket to
// bucket, doesn't copy them in order to grow.
type bucket struct {
	first  []event
	chunks []*chunk
	// last is the number of events in the last chunk.
	last int
}

type chunk [256]event

// eventKind is the kind of an event.
type eventKind uint8

const (
	// eventDelivery delivers the message in slot.
	eventDelivery eventKind = iota
	// eventUndelivered notifies the sender that the message in slot was not
	// delivered.
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
	// eventInitiate makes a process start an election, or recover.
	eventInitiate
)

// event is something that happens to a process at a given time.

type event struct {
	at      election.Tick
	kind    eventKind
	process election.ID
	// peer depends on the kind: another process, the sender's incarnation, or the
	// sender's lease.
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
	if len(b.first) < len(chunk{}) {
		b.first = append(b.first, *e)
		return
	}
	q.putInChunk(b, e)
}

// putInChunk puts an event into the chunks of a bucket.
func (q *queue) putInChunk(b *bucket, e *event) {
	if len(b.chunks) == 0 || b.last == len(chunk{}) {
		b.chunks, b.last = append(b.chunks, q.newChunk()), 0
	}
	b.chunks[len(b.chunks)-1][b.last] = *e
	b.last++
}

// newChunk returns an unused chunk.
func (q *queue) newChunk() *chunk {
	last := len(q.spare) - 1
	if last < 0 {
		return new(chunk)
	}
	c := q.spare[last]
	q.spare = q.spare[:last]
	return c
}

// pop removes and returns the earliest event, and sets now to its time.
func (q *queue) pop() (event, bool) {
	if q.size == 0 {
		return event{}, false
	}
	due := &q.buckets[0]
	if q.head == len(due.first) {
		if len(due.chunks) > 0 {
			q.nextChunk(due)
		} else {
			q.refill()
		}
	}
	e := due.first[q.head]
	q.head++
	q.size--
	return e, true
}

// nextChunk moves the first chunk of a bucket to its first slice, all of whose
// events were popped.
func (q *queue) nextChunk(b *bucket) {
	c := b.chunks[0]
	b.first = append(b.first[:0], c[:b.chunkLen(0)]...)
	q.spare = append(q.spare, c)
	b.chunks, q.head = b.chunks[1:], 0
}

// refill sets now to the earliest time of the remaining events and moves those to
// lower buckets.
func (q *queue) refill() {
	q.buckets[0].first, q.head = q.buckets[0].first[:0], 0
	b := &q.buckets[1]
	for n := 1; len(b.first) == 0; n++ {
		b = &q.buckets[n]
	}
	q.now = b.earliest()
	for i := range b.first {
		q.put(&b.first[i])
	}
	for i, c := range b.chunks {
		for j := range b.chunkLen(i) {
			q.put(&c[j])
		}
		q.spare = append(q.spare, c)
	}
	b.clear()
}

// chunkLen returns the number of events in chunk i.
func (b *bucket) chunkLen(i int) int {
	if i == len(b.chunks)-1 {
		return b.last
	}
	return len(chunk{})
}

func (b *bucket) earliest() election.Tick {
	earliest := b.first[0].at
	for i := range b.first {
		earliest = min(earliest, b.first[i].at)
	}
	for i, c := range b.chunks {
		for j := range b.chunkLen(i) {
			earliest = min(earliest, c[j].at)
		}
	}
	return earliest
}

func (b *bucket) clear() { b.first, b.chunks, b.last = b.first[:0], b.chunks[:0], 0 }

// reset removes all events and retains the memory.
func (q *queue) reset() {
	for i := range q.buckets {
		b := &q.buckets[i]
		q.spare = append(q.spare, b.chunks...)
		b.clear()
	}
	q.now, q.size, q.head = 0, 0, 0
}
