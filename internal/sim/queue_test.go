package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
)

func TestQueueOrdersByTimeAndArrival(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var q queue
		var want []event
		number := uint32(0)
		push := func(at election.Tick) {
			number++
			e := event{at: at, slot: number}
			q.push(e)
			want = append(want, e)
		}
		for range 1 + random.IntN(1500) {
			push(election.Tick(random.IntN(4)) * 1000)
		}
		var got []event
		for e, more := q.pop(); more; e, more = q.pop() {
			got = append(got, e)
			if number < 4000 && random.IntN(3) > 0 {
				push(e.at + election.Tick(random.IntN(3))*election.Tick(1+random.IntN(1000)))
			}
		}
		slices.SortStableFunc(want, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		if !slices.Equal(got, want) {
			t.Fatalf("got events\n%v\nwant\n%v", got, want)
		}
	}
}

func TestSlabStoresMessagesInFlight(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var s slab
	stored := map[uint32]uint64{}
	var slots []uint32
	for number := uint64(1); number <= 20_000; number++ {
		slot := s.put(&election.Message{Lamport: number, List: []election.ID{1}})
		if _, taken := stored[slot]; taken {
			t.Fatalf("slot %d was reused while it had message %d", slot, stored[slot])
		}
		stored[slot], slots = number, append(slots, slot)
		if random.IntN(5) < 2 {
			i := random.IntN(len(slots))
			if m := s.take(slots[i]); m.Lamport != stored[slots[i]] {
				t.Fatalf("slot %d: got message %d, want %d", slots[i], m.Lamport, stored[slots[i]])
			}
			delete(stored, slots[i])
			slots = slices.Delete(slots, i, i+1)
		}
	}
	s.reset()
	if slot := s.put(&election.Message{}); slot != 0 {
		t.Fatalf("first slot after a reset: got %d, want 0", slot)
	}
}
