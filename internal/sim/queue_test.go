package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// sortedList is the reference model of a queue: a list in the order of time and, for equal times, of arrival.
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

// resurfacingSeed found that a process that resigned reported the coordinator of which it
// had learned before its own tenure.
const resurfacingSeed = 15674

// Restarted processes run the recovery of their algorithm. No schedule violates an
// invariant: there still is at most one coordinator, and always one in the end.
func TestSchedulesWithRecovery(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds /= 10
	}
	for _, algorithm := range catalog.All() {
		for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
			t.Run(algorithm.Name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				s, err := newSimulation(settings{algorithm: algorithm, mode: mode, size: 5, faults: allFaults | Recovery})
				must.Succeed(t, err)
				began, learned := 0, 0
				s.watch = func(step transcript.Step) {
					if step.Output == nil {
						return
					}
					if step.Input.Kind == election.Recover {
						began++
					}
					for _, e := range step.Output.Events {
						if e.Kind == election.Learned {
							learned++
						}
					}
				}
				for seed := range seeds + 1 {
					if seed == seeds {
						seed = resurfacingSeed
					}
					if v := s.run(seed); v != nil {
						t.Fatalf("seed %d: %s: %s", seed, v.Invariant, v.Detail)
					}
				}
				// In Available mode, the process follows the BEAT with which the coordinator welcomes it.
				asks := mode != office.Available && (algorithm.Name == "StatusTable" || algorithm.Name == "RingActiveList")
				if began == 0 || asks && learned == 0 {
					t.Errorf("got %d recoveries, in %d of which the answer named the coordinator, want some", began, learned)
				}
			})
		}
	}
}
