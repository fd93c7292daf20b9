package fair_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/conclave-dev/conclave/internal/net/fair"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func anyone(string) bool { return true }

func TestUsersTakeTurns(t *testing.T) {
	var q fair.Queue[string, string]
	for i := range 4 {
		q.Push("greedy", fmt.Sprint("greedy-", i))
	}
	q.Push("bank", "bank-0")
	q.Push("shop", "shop-0")
	q.Push("bank", "bank-1")
	q.Remove("greedy", func(item string) bool { return item == "greedy-1" })
	q.Remove("shop", func(item string) bool { return item == "shop-0" })
	q.Remove("nobody", func(string) bool { return true })
	expect.Equalf(t, q.Len(), 5, "items")
	if item, ok := q.Pop(func(user string) bool { return user == "shop" }); ok {
		t.Errorf("got %s for a user without items, want none", item)
	}
	if item, _ := q.Pop(func(user string) bool { return user != "greedy" }); item != "bank-0" {
		t.Errorf("got %s, want bank-0: greedy may have none", item)
	}
	q.Push("shop", "shop-1")
	var order []string
	for q.Len() > 0 {
		item, _ := q.Pop(anyone)
		order = append(order, item)
	}
	expect.Equalf(t, strings.Join(order, " "), "greedy-0 bank-1 shop-1 greedy-2 greedy-3", "order")
	if item, ok := q.Pop(anyone); ok {
		t.Errorf("got %q from an empty queue, want none", item)
	}
}

// One user waits for many slots. It never has more than its share, and another one gets a slot
// although all of the first one's are occupied.
func TestUserHasOnlyItsShare(t *testing.T) {
	s := fair.NewSemaphore[string](4, 3)
	var greedy []func()
	for range 3 {
		release, err := s.Acquire(t.Context(), "greedy")
		must.Succeed(t, err)
		greedy = append(greedy, release)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Acquire(canceled, "greedy"); err == nil {
		t.Error("got a fourth slot for a user, want an error when the context ends")
	}
	release, err := s.Acquire(t.Context(), "bank")
	must.Succeed(t, err)
	if _, err := s.Acquire(canceled, "shop"); err == nil {
		t.Error("got a fifth slot, want an error when the context ends")
	}
	release()
	for _, release := range greedy {
		release()
	}
	for range 3 { // Those that waited in vain occupy no slot.
		_, err := s.Acquire(t.Context(), "greedy")
		must.Succeed(t, err)
	}
}

// Many goroutines of some users acquire slots, and give up at random. No limit is exceeded, and
// in the end all slots are free.
func TestSlotsAreNeitherLostNorExceeded(t *testing.T) {
	const total, perUser = 5, 3
	s := fair.NewSemaphore[int](total, perUser)
	var all atomic.Int32
	var of [3]atomic.Int32
	var work sync.WaitGroup
	for i := range 60 {
		work.Go(func() {
			user, random := i%len(of), rand.New(rand.NewPCG(1, uint64(i)))
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(2) == 0 {
					go cancel()
				}
				release, err := s.Acquire(ctx, user)
				if err == nil {
					expect.AtMostf(t, all.Add(1), total, "slots")
					expect.AtMostf(t, of[user].Add(1), perUser, "slots of a user")
					of[user].Add(-1)
					all.Add(-1)
					release()
				}
				cancel()
			}
		})
	}
	work.Wait()
	var releases []func()
	for _, user := range []int{0, 0, 0, 1, 1} {
		release, err := s.Acquire(t.Context(), user)
		must.Succeed(t, err)
		releases = append(releases, release)
	}
	for _, release := range releases {
		release()
	}
}
