package membership

import (
	"math/rand/v2"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// TestAssignPriorities tests with random ranks and priorities that the new priorities are unique, keep the order, and
// remain.
func TestAssignPriorities(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		all := randomCandidates(rng)
		before := map[string]int32{}
		for _, c := range all {
			before[c.name] = c.priority
		}
		assignPriorities(all, "")
		for i, c := range all {
			if c.priority < 0 || c.priority > v1.MaxPriority || (c.priority == 0) != (c.rank == 0) {
				t.Fatalf("rank %d: got priority %d", c.rank, c.priority)
			}
			for _, other := range all[:i] {
				switch {
				case c.rank == 0 || other.rank == 0:
				case c.priority == other.priority:
					t.Fatalf("two candidates got priority %d", c.priority)
				case c.rank > other.rank != (c.priority > other.priority) && c.rank != other.rank:
					t.Fatalf("ranks %d and %d: got priorities %d and %d", c.rank, other.rank, c.priority, other.priority)
				case c.rank == other.rank && before[c.name] > before[other.name] != (c.priority > other.priority) &&
					before[c.name] != before[other.name]:
					t.Fatalf("two candidates of the same rank with priorities %d and %d have changed their order",
						before[c.name], before[other.name])
				}
			}
		}
		again := map[string]int32{}
		for _, c := range all {
			again[c.name] = c.priority
		}
		assignPriorities(all, "")
		for _, c := range all {
			if c.priority != again[c.name] {
				t.Fatalf("got priority %d and then %d from the same input", again[c.name], c.priority)
			}
		}
	}
}

// The preferred candidate is above all of its rank and below the next rank, for any number of moves.
func TestAssignPrioritiesToPreferred(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		all := randomCandidates(rng)
		assignPriorities(all, "")
		preferred := all[rng.IntN(len(all))]
		assignPriorities(all, preferred.name)
		for _, c := range all {
			if c != preferred && c.rank == preferred.rank && c.rank > 0 && c.priority > preferred.priority {
				t.Fatalf("got %d for the preferred candidate, and %d for another of its rank", preferred.priority, c.priority)
			}
			if c.rank > preferred.rank && c.priority <= preferred.priority {
				t.Fatalf("got %d for the preferred candidate, and %d for one of a higher rank", preferred.priority, c.priority)
			}
		}
	}
	all := []*candidate{
		{name: "a", rank: 1, rankKnown: true}, {name: "b", rank: 1, rankKnown: true}, {name: "c", rank: 1, rankKnown: true},
	}
	for i := range 2 * v1.MaxPriority {
		preferred := all[i%3]
		assignPriorities(all, preferred.name)
		for _, c := range all {
			if c.priority < 1 || c.priority > v1.MaxPriority || c != preferred && c.priority >= preferred.priority {
				t.Fatalf("move %d: got %d for the preferred candidate, and %d for another", i, preferred.priority, c.priority)
			}
		}
	}
}

func randomCandidates(rng *rand.Rand) []*candidate {
	var all []*candidate
	taken := map[int32]bool{}
	top := []int64{4, 12, v1.MaxPriority}[rng.IntN(3)]
	for i := range 1 + rng.IntN(7) {
		c := &candidate{name: string(rune('a' + i)), rankKnown: true}
		c.rank = rng.Int64N(top + 1)
		if top > 12 {
			c.rank = max(0, top-rng.Int64N(9))
		}
		c.preferred = c.rank
		if p := int32(max(0, min(v1.MaxPriority, c.rank+rng.Int64N(9)-4))); rng.IntN(3) > 0 && !taken[p] {
			c.priority = p
			taken[p] = true
		}
		all = append(all, c)
	}
	return all
}
