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
	buckets [64]bucket
	// head is how many events of bucket 0 have been taken from its first, or,
	// when that is used up, from the first of its chunks.
	head  int
	spare []*chunk
}

// bucket holds its first events in a slice, and those for which that has no
// room in chunks. A small world never needs a chunk; a large one, in which
// millions of events move from bucket to bucket, copies none for want of room.
type bucket struct {
	first  []event
	chunks []*chunk
	// last is how many events the last chunk has.
	last int
}

type chunk [256]event

type eventKind uint8

const (
	// deliver the message in slot.
	eventDelivery eventKind = iota
	// undelivered: tell the sender so.
	eventUndelivered
	// wake a process for its deadline.
	eventTimer
	// fault: carry out the next step of the plan.
	eventAction
	// noticed: a process notices that peer's process has ended.
	eventPeerEnded
	// stopped: the application of a process has stopped.
	eventAppStopped
	// adopted: a process takes over a member list.
	eventRoster
	// call a process to start an election.
	eventInitiate
)

type event struct {
	at      election.Tick
	kind    eventKind
	process election.ID
	// peer is the process that it is about, its life, or the lease by which the
	// sender of a message goes.
	peer election.ID
	// slot is a message's place in the slab, a life, or a version.
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

func (q *queue) newChunk() *chunk {
	last := len(q.spare) - 1
	if last < 0 {
		return new(chunk)
	}
	c := q.spare[last]
	q.spare = q.spare[:last]
	return c
}

// pop takes out the earliest event, and moves the present to its moment.
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

// nextChunk moves the first chunk of a bucket to its front, where the events
// have all been taken.
func (q *queue) nextChunk(b *bucket) {
	c := b.chunks[0]
	b.first = append(b.first[:0], c[:b.chunkLen(0)]...)
	q.spare = append(q.spare, c)
	b.chunks, q.head = b.chunks[1:], 0
}

// refill moves the present to the earliest moment that is left.
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

// in is how many events chunk i has.
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

// reset empties the queue and keeps its memory.
func (q *queue) reset() {
	for i := range q.buckets {
		b := &q.buckets[i]
		q.spare = append(q.spare, b.chunks...)
		b.clear()
	}
	q.now, q.size, q.head = 0, 0, 0
}
