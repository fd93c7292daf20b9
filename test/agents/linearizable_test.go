package agents

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/troupe"
)

var (
	faults = flag.Int("faults", 1000, "how many faults befall the groups of each safety mode")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "what the faults are drawn from")
)

func TestMain(m *testing.M) { troupe.Main(m) }

// forecast is what strikes one ledger.
func forecast(l *ledger, stream int, kinds ...[]kind) *weather {
	w := &weather{ledger: l, rng: rand.New(rand.NewPCG(*seed, uint64(stream))), afflicted: map[string]bool{}}
	for _, some := range kinds {
		w.kinds = append(w.kinds, some...)
	}
	return w
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
	troupe.NeedPartitions(t)
	for _, mode := range []string{"Majority", "Strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Logf("to have the same faults: go test ./test/agents -run '%s' -faults %d -seed %d", t.Name(), *faults, *seed)
			begun := time.Now()
			var struck, reads, writes, tenures atomic.Int64
			t.Run("groups", func(t *testing.T) {
				for i, house := range houses {
					t.Run(fmt.Sprintf("%d-of-%d-%s", i, house.agents, house.policy), func(t *testing.T) {
						t.Parallel()
						l := openLedger(t, mode, house.agents, house.policy)
						kinds := [][]kind{atAgents, atNetwork}
						if mode == "Strict" {
							kinds = append(kinds, alone)
						}
						w := forecast(l, i, kinds...)
						l.endure(w, (*faults+len(houses)-1)/len(houses))
						led, written := l.storage.counts()
						struck.Add(int64(w.count))
						reads.Add(int64(l.history.readCount()))
						writes.Add(int64(written))
						tenures.Add(int64(led))
					})
				}
			})
			t.Logf("%d faults in %s: %d tenures, %d reads, %d writes", struck.Load(), time.Since(begun).Round(time.Second), tenures.Load(), reads.Load(), writes.Load())
			// Else it proves nothing.
			if tenures.Load() < struck.Load()/5 || reads.Load() < 10*struck.Load() || writes.Load() < struck.Load() {
				t.Error("too little happened in between")
			}
		})
	}
}

// endure lets the faults strike, and then asks whether all was as it should be.
func (l *ledger) endure(w *weather, count int) {
	l.t.Helper()
	err := l.recover()
	if err == nil {
		err = w.strike(count)
	}
	if err != nil {
		l.t.Error(err)
	}
	if err := l.verify(); err != nil {
		l.t.Error(err)
	}
	if l.t.Failed() {
		l.t.Logf("what happened:\n%s", strings.Join(l.diary, "\n"))
	}
}

// TestCheckerSeesTwoCoordinators: in Available mode, a partition has two of
// them. If nobody noticed that, the other test would prove nothing.
func TestCheckerSeesTwoCoordinators(t *testing.T) {
	troupe.NeedPartitions(t)
	const attempts = 50
	l := openLedger(t, "Available", 3, "Always")
	w := forecast(l, len(houses), atNetwork)
	if err := l.recover(); err != nil {
		t.Fatal(err)
	}
	for w.count < attempts {
		if err := w.strike(w.count + 1); err != nil {
			t.Fatal(err)
		}
		if err := l.history.verify(); err != nil {
			t.Logf("after %d partitions: %v", w.count, err)
			return
		}
	}
	t.Errorf("in %d partitions, nobody read anything stale from a coordinator that had been replaced", attempts)
}
