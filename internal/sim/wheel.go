package sim

import (
	"math/bits"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// wheel is a timing wheel: a queue for schedules, in which nearly all events are due
// within a few hundred ticks. Each of the next wheelSlots ticks has its own slot.
// Later events wait in a sorted list. An event moves from the list to its slot as
// soon as its time is in range, before any other event can be put there, so events
// of the same time keep their order.
type wheel struct {
	now  election.Tick
	size int
	// slots has the events of the next wheelSlots ticks. busy has a bit for each slot
	// that isn't empty.
	slots [wheelSlots][]event
	busy  [wheelSlots / 64]uint64
	// head is the number of events of the current slot that were popped.
	head int
	// far has the later events in the order of time.
	far []event
}

const wheelSlots = 256

func (w *wheel) push(e event) {
	w.size++
	if e.at-w.now < wheelSlots {
		w.put(e)
		return
	}
	i := len(w.far)
	for i > 0 && w.far[i-1].at > e.at {
		i--
	}
	w.far = slices.Insert(w.far, i, e)
}

func (w *wheel) put(e event) {
	i := int(e.at) & (wheelSlots - 1)
	w.slots[i] = append(w.slots[i], e)
	w.busy[i/64] |= 1 << (i & 63)
}

// pop removes and returns the earliest event, and sets now to its time.
func (w *wheel) pop() (event, bool) {
	if w.size == 0 {
		return event{}, false
	}
	i := int(w.now) & (wheelSlots - 1)
	if w.head == len(w.slots[i]) {
		w.slots[i], w.head = w.slots[i][:0], 0
		w.busy[i/64] &^= 1 << (i & 63)
		w.advance(i)
		i = int(w.now) & (wheelSlots - 1)
	}
	e := w.slots[i][w.head]
	w.head++
	w.size--
	return e, true
}

// advance sets now to the time of the next event.
func (w *wheel) advance(from int) {
	if ahead := w.nextBusy(from); ahead > 0 {
		w.now += election.Tick(ahead)
	} else {
		w.now = w.far[0].at
	}
	near := 0
	for near < len(w.far) && w.far[near].at-w.now < wheelSlots {
		w.put(w.far[near])
		near++
	}
	if near > 0 {
		w.far = slices.Delete(w.far, 0, near)
	}
}

// nextBusy returns the distance from a slot to the next one that isn't empty, or 0
// if all are empty.
func (w *wheel) nextBusy(from int) int {
	word, bit := from/64, from&63
	if rest := w.busy[word] >> bit; rest != 0 {
		return bits.TrailingZeros64(rest)
	}
	for n := 1; n <= len(w.busy); n++ {
		if next := w.busy[(word+n)%len(w.busy)]; next != 0 {
			return n*64 - bit + bits.TrailingZeros64(next)
		}
	}
	return 0
}

// reset removes all events and retains the memory.
func (w *wheel) reset() {
	for i := range w.slots {
		w.slots[i] = w.slots[i][:0]
	}
	w.busy = [wheelSlots / 64]uint64{}
	w.now, w.size, w.head, w.far = 0, 0, 0, w.far[:0]
}
