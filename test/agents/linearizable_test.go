package agents

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

var (
	faults = flag.Int("faults", 1000, "how many faults befall the groups of each safety mode")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "what the faults are drawn from")
)

func TestMain(m *testing.M) { agentcluster.Main(m) }

// forecast is what strikes one ledger.
func forecast(l *ledger, stream int, kinds []kind) *weather {
	return &weather{ledger: l, rng: rand.New(rand.NewPCG(*seed, uint64(stream))), kinds: kinds, afflicted: map[string]bool{}}
}

// houses are the groups that are struck at the same time.
var houses = []struct {
	agents int
	policy string
}{{3, "Always"}, {5, "Never"}, {3, "WhenStable"}, {5, "Always"}, {3, "Never"}, {5, "WhenStable"}, {3, "Always"}, {3, "Never"}}

// TestRegistersAreLinearizable: whatever happens, clients of the coordinator
// see registers that behave as if there were one copy of them, although the
// coordinator answers reads from memory.
func TestRegistersAreLinearizable(t *testing.T) {
	agentcluster.NeedPartitions(t)
	for _, mode := range []string{"Majority", "Strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Logf("to have the same faults: go test ./test/agents -run '%s' -faults %d -seed %d", t.Name(), *faults, *seed)
			begun := time.Now()
			kinds := slices.Concat(atAgents, atNetwork)
			if mode == "Strict" {
				kinds = append(kinds, alone...)
			}
			ledgers := make([]*ledger, len(houses))
			for i, house := range houses {
				ledgers[i] = openLedger(t, mode, house.agents, house.policy)
			}
			var all sync.WaitGroup
			var struck atomic.Int64
			for i, l := range ledgers {
				all.Go(func() {
					w := forecast(l, i, kinds)
					l.endure(w, (*faults+len(houses)-1)/len(houses))
					struck.Add(int64(w.count))
				})
			}
			all.Wait()
			reads, writes, tenures := 0, 0, 0
			slowest := time.Duration(0)
			for _, l := range ledgers {
				led, written := l.storage.counts()
				reads, writes, tenures = reads+l.history.readCount(), writes+written, tenures+led
				slowest = max(slowest, l.slowest)
			}
			t.Logf("%d faults in %s: %d tenures, %d reads, %d writes; the slowest recovery took %s",
				struck.Load(), time.Since(begun).Round(time.Second), tenures, reads, writes, slowest.Round(time.Millisecond))
			// Else it proves nothing.
			if hit := int(struck.Load()); tenures < hit/5 || reads < 5*hit || writes < hit {
				t.Error("too little happened in between")
			}
		})
	}
}

// endure lets the faults strike, and then asks whether all was as it should be.
func (l *ledger) endure(w *weather, count int) {
	err := l.recover()
	if err == nil {
		err = w.strike(count)
	}
	if err = errors.Join(err, l.verify()); err != nil {
		l.t.Errorf("group %s: %v\nwhat happened:\n%s", l.name, err, l.story())
	}
}

// TestCheckerSeesTwoCoordinators: in Available mode, a partition has two of
// them. If nobody noticed that, the other test would prove nothing.
func TestCheckerSeesTwoCoordinators(t *testing.T) {
	agentcluster.NeedPartitions(t)
	l := openLedger(t, "Available", 3, "Always")
	// The former coordinator may try to write before it reads, and be fenced off.
	const attempts = 20
	for range attempts {
		if err := l.recover(); err != nil {
			t.Fatal(err)
		}
		if err := l.troupe.AwaitConnected(l.ctx); err != nil {
			t.Fatal(err)
		}
		// When they start, each finds itself alone. That is over now.
		l.register.Add(1)
		names := l.troupe.Names()
		former := slices.IndexFunc(names, func(name string) bool { return l.application(name).leads() })
		if err := l.troupe.Partition(names[former:former+1], slices.Delete(l.troupe.Names(), former, former+1)); err != nil {
			t.Fatal(err)
		}
		if seen := l.awaitViolation(2 * time.Second); seen != nil {
			t.Log(seen)
			return
		}
		if err := l.troupe.Heal(); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("in %d partitions, nobody read anything stale from a coordinator that had been replaced", attempts)
}

// awaitViolation returns what the checker complains of, and nil if it doesn't
// in time.
func (l *ledger) awaitViolation(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	var seen error
	_ = agentcluster.Await(ctx, func(context.Context) error {
		if seen = l.history.verifyRegister(int(l.register.Load())); seen == nil {
			return errors.New("all is well")
		}
		return nil
	})
	return seen
}
