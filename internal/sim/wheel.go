package sim

import (
	"math/bits"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// wheel is a queue for small worlds, in which nearly everything happens within
// a few hundred ticks: each of the next moments has a slot of its own. What lies
// further ahead waits in a list, and is put into its slot when that comes near,
// before anything else can be.
type wheel struct {
	now  election.Tick
	size int
	// slots hold what is due at the next moments; busy has a bit for each that
	// holds anything.
	slots [wheelSlots][]event
	busy  [wheelSlots / 64]uint64
	// head is how many events of the present slot have been taken.
	head int
	// far is in the order of time.
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

// pop takes out the earliest event, and moves the present to its moment.
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

// advance moves the present to the next moment at which anything is due.
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

// ahead is how many slots behind from the next busy one is, 0 if none is.
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

// reset empties the wheel and keeps its memory.
func (w *wheel) reset() {
	for i := range w.slots {
		w.slots[i] = w.slots[i][:0]
	}
	w.busy = [wheelSlots / 64]uint64{}
	w.now, w.size, w.head, w.far = 0, 0, 0, w.far[:0]
}
