package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// sortedList is the reference model of a queue: a list in the order of time and, for
// equal times, of arrival.
type sortedList []event

func (s *sortedList) push(e event) {
	i := len(*s)
	for i > 0 && (*s)[i-1].at > e.at {
		i--
	}
	*s = slices.Insert(*s, i, e)
}

func (s *sortedList) pop() (event, bool) {
	if len(*s) == 0 {
		return event{}, false
	}
	e := (*s)[0]
	*s = (*s)[1:]
	return e, true
}

// randomDelay returns a time that is now, soon, late or the last one possible.
func randomDelay(random *rand.Rand, now election.Tick) election.Tick {
	ahead := election.Tick(random.IntN(20))
	switch random.IntN(16) {
	case 0, 1, 2:
		ahead = 0
	case 3:
		ahead = election.Tick(random.Int64N(1 << 40))
	case 4:
		ahead = election.Never
	}
	return now + min(ahead, election.Never-now)
}

// The queue returns the same events in the same order as a sorted list, with pushes
// and pops in any order, and also after a reset.
func TestQueueAgainstSortedList(t *testing.T) {
	var q queue
	random := rand.New(rand.NewPCG(10, 10))
	for round := range 200 {
		var plain sortedList
		q.reset()
		pushes := 1 + random.IntN(4) // of 5 steps
		steps := 400
		if round%50 == 0 {
			steps = 20 * chunkLen
		}
		for i := range steps {
			if random.IntN(5) < pushes {
				e := event{at: randomDelay(random, q.now), process: election.ID(i), slot: uint32(i)}
				q.push(e)
				plain.push(e)
			} else {
				comparePop(t, &q, &plain)
			}
			must.Equalf(t, q.size, len(plain), "pending events")
		}
		if random.IntN(3) > 0 { // otherwise the next reset happens with events pending
			for len(plain) > 0 {
				comparePop(t, &q, &plain)
			}
			comparePop(t, &q, &plain)
		}
	}
}

func comparePop(t *testing.T, q *queue, plain *sortedList) {
	t.Helper()
	got, more := q.pop()
	want, wanted := plain.pop()
	if got != want || more != wanted {
		t.Fatalf("got event %+v (%v), want %+v (%v)", got, more, want, wanted)
	}
	if more && q.now != got.at {
		t.Fatalf("got time %d after the event of %d", q.now, got.at)
	}
}

// A slot is reused only after its message was taken.
func TestSlabAgainstMap(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 11))
	var s slab
	for range 50 {
		s.reset()
		model, slots := map[uint32]election.Message{}, []uint32(nil)
		for i := range 300 {
			if len(slots) == 0 || random.IntN(2) == 0 {
				m := election.Message{Kind: election.Elect, Lamport: uint64(i), List: []election.ID{election.ID(i)}}
				slot := s.put(&m)
				if _, taken := model[slot]; taken {
					t.Fatalf("slot %d was used for two messages", slot)
				}
				model[slot], slots = m, append(slots, slot)
				continue
			}
			at := random.IntN(len(slots))
			slot := slots[at]
			slots = slices.Delete(slots, at, at+1)
			if got, want := s.take(slot), model[slot]; got.Lamport != want.Lamport || !slices.Equal(got.List, want.List) {
				t.Fatalf("slot %d: got %v, want %v", slot, got, want)
			}
			delete(model, slot)
		}
		if free := s.put(&election.Message{}); int(free) > 300 {
			t.Fatalf("got slot %d, want one of the first 300", free)
		}
	}
}
