package grants_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// sizes are sizes of member lists, up to the largest one.
var sizes = []int{3, 5, 100, 1000}

func idsTo(size int) []election.ID {
	ids := make([]election.ID, size)
	for i := range ids {
		ids[i] = election.ID(i + 1)
	}
	return ids
}

// TestUntilIsThatOfTheMajority compares Until after each of many grants with a calculation
// from all of them.
func TestUntilIsThatOfTheMajority(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range sizes {
		list := roster(t, 1, idsTo(size)...)
		var s grants.Support
		s.Reset(list, lease)
		sent := make([]election.Tick, size)
		for now := election.Tick(1); int(now) < 3*size+100; now++ {
			id, at := 1+random.IntN(size), max(1, now-election.Tick(random.IntN(size)))
			s.Add(election.ID(id), at, 0)
			sent[id-1] = max(sent[id-1], at)
			byAge := slices.Sorted(slices.Values(sent))
			want := none
			if oldest := byAge[size-list.Majority()]; oldest > 0 {
				want = oldest + grantDuration
			}
			if wantUntil(t, &s, want); t.Failed() {
				t.Fatalf("%d members, after %d grants", size, now)
			}
		}
	}
}

func TestLowestBoundOfManyMembers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range sizes {
		reported := bounds{}
		for i, term := range random.Perm(size) {
			reported[election.ID(i+1)] = election.Term(term)
		}
		for count := 1; count <= size; count += 1 + size/10 {
			got, ok := grants.LowestBound(roster(t, 1, idsTo(size)...), count, reported.of)
			if want := election.Term(count - 1); !ok || got != want {
				t.Errorf("%d of %d members: got bound %d (%t), want %d", count, size, got, ok, want)
			}
		}
	}
}

// BenchmarkRenewal is the cost of the grants of one round of heartbeats.
func BenchmarkRenewal(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			ring := make([]election.Member, size)
			for i, id := range idsTo(size) {
				ring[i] = election.Member{ID: id, Priority: election.Priority(id)}
			}
			list, err := election.NewRoster(1, ring)
			must.Succeed(b, err)
			var s grants.Support
			s.Reset(list, lease)
			for now := election.Tick(1); b.Loop(); now++ {
				for _, m := range slices.Backward(ring) {
					s.Add(m.ID, now, 0)
				}
			}
		})
	}
}
