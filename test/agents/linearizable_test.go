package agents

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var (
	faults = flag.Int("faults", 0, "number of faults for each safety mode (default 500, or 50 with -short)")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "random seed of the faults")
)

func TestMain(m *testing.M) {
	if role := strings.Fields(os.Getenv(roleVariable)); len(role) > 0 {
		runRole(role)
		os.Exit(1)
	}
	agentcluster.Main(m)
}

func newFaultInjector(e *env, stream int, faults []fault) *faultInjector {
	return &faultInjector{
		env: e, rng: rand.New(rand.NewPCG(*seed, uint64(stream))), faults: faults, faulty: map[string]bool{},
	}
}

// groups are the groups that run at the same time.
var groups = []struct {
	agents int
	policy string
}{{3, "Always"}, {5, "Never"}, {3, "WhenStable"}, {5, "Always"}, {3, "Never"}, {5, "WhenStable"}, {3, "Always"}, {
	3, "Never",
}}

// repeatedGroups is how many of the groups repeat their elections. They have all sizes and two policies.
const repeatedGroups = 2

// extent returns how many faults are injected into each of how many groups.
func extent() (count, groupCount int) {
	count, groupCount = 500, len(groups)
	if testing.Short() {
		count, groupCount = 50, repeatedGroups+1 // These have all sizes and policies.
	}
	if *faults > 0 {
		count = *faults
	}
	return (count + groupCount - 1) / groupCount, groupCount
}

// TestRegistersAreLinearizable checks that the registers behave as if there were a single
// copy of them, despite all faults, although the coordinator serves reads from its cache.
func TestRegistersAreLinearizable(t *testing.T) {
	agentcluster.NeedPartitions(t)
	for _, mode := range []string{"Majority", "Strict"} {
		t.Run(mode, func(t *testing.T) {
			if testing.Short() {
				t.Parallel()
			}
			count, groupCount := extent()
			t.Logf("to inject the same faults: go test ./test/agents -run '%s' -short=%t -faults %d -seed %d", t.Name(),
				testing.Short(), count*groupCount, *seed)
			start := time.Now()
			kinds := slices.Concat(agentFaults, networkFaults)
			if mode == "Strict" {
				kinds = append(kinds, agentOnlyFaults...)
			}
			envs := make([]*env, groupCount)
			for i, group := range groups[:groupCount] {
				envs[i] = newEnv(t, mode, group.agents, group.policy)
			}
			var all sync.WaitGroup
			var injected atomic.Int64
			for i, e := range envs {
				all.Go(func() {
					w := newFaultInjector(e, i, kinds)
					e.injectFaults(w, count)
					injected.Add(int64(w.count))
				})
			}
			all.Wait()
			reads, writes, tenures := 0, 0, 0
			slowest := time.Duration(0)
			for _, e := range envs {
				started, written := e.storage.counts()
				reads, writes, tenures = reads+e.history.readCount(), writes+written, tenures+started
				slowest = max(slowest, e.slowest)
			}
			t.Logf("%d faults in %s: %d tenures, %d reads, %d writes; the slowest recovery took %s",
				injected.Load(), time.Since(start).Round(time.Second), tenures, reads, writes, slowest.Round(time.Millisecond))
			// With too few operations, the test would prove nothing.
			if count := int(injected.Load()); tenures < count/5 || reads < 5*count || writes < count {
				t.Errorf("got too few tenures or operations for %d faults", count)
			}
			for _, e := range envs[:repeatedGroups] {
				e.cluster.checkTraces()
			}
		})
	}
}

// injectFaults injects faults, and then verifies the history and the storage.
func (e *env) injectFaults(w *faultInjector, count int) {
	err := e.awaitRecovery()
	if err == nil {
		err = w.run(count)
	}
	if err = errors.Join(err, e.verify()); err != nil {
		e.t.Errorf("group %s: %v\nevents:\n%s", e.name, err, e.eventLog())
	}
}

// TestCheckerDetectsTwoCoordinators checks that the checker finds violations at all. In
// Available mode, there are two coordinators during a partition.
func TestCheckerDetectsTwoCoordinators(t *testing.T) {
	agentcluster.NeedPartitions(t)
	e := newEnv(t, "Available", 3, "Always")
	// The former coordinator may write before it reads. The storage then rejects its token,
	// and there is no stale read. So several attempts may be necessary.
	const attempts = 20
	for range attempts {
		must.Succeed(t, e.awaitRecovery())
		must.Succeed(t, e.cluster.AwaitConnected(e.ctx))
		// Ignore the start, when each agent may elect itself.
		e.register.Add(1)
		former, err := e.cluster.AwaitCoordinator(e.ctx)
		must.Succeed(t, err)
		others := slices.DeleteFunc(e.cluster.Names(), func(name string) bool { return name == former })
		must.Succeed(t, e.cluster.Partition([]string{former}, others))
		if violation := e.awaitViolation(2 * time.Second); violation != nil {
			t.Log(violation)
			return
		}
		must.Succeed(t, e.cluster.Heal())
	}
	t.Errorf("the checker found no stale read in %d partitions", attempts)
}

// awaitViolation waits until the checker finds a violation. It returns nil if there is none before the limit.
func (e *env) awaitViolation(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	var violation error
	_ = agentcluster.Await(ctx, func(context.Context) error {
		if violation = e.history.verifyRegister(int(e.register.Load())); violation == nil {
			return errors.New("no violation")
		}
		return nil
	})
	return violation
}

func TestStaleReadIsDetected(t *testing.T) {
	h := newHistory()
	h.add(request{write: true, value: 1, at: "a"}, 1, 0, 10)
	h.add(request{write: true, value: 2, at: "b"}, 2, 20, 30)
	h.add(request{at: "b"}, 2, 25, 40)
	h.add(request{at: "a"}, 1, 15, 28)
	expect.Succeedf(t, h.verify(), "read of the old value during a write")
	h.add(request{at: "a"}, 1, 50, 60)
	expect.ErrorContainsf(t, h.verify(), "at a, reads 1", "stale read")
}

func TestWriteWithoutResponseMayHappenAtAnyTime(t *testing.T) {
	h := newHistory()
	h.add(request{write: true, value: 1, at: "a"}, 1, 0, noResponse)
	h.add(request{at: "b"}, 0, 10, 20)
	h.add(request{at: "b"}, 1, 30, 40)
	expect.Succeed(t, h.verify())
	h.add(request{at: "b"}, 0, 50, 60)
	if err := h.verify(); err == nil {
		t.Error("read of an older value after a newer one: got no error")
	}
}

func TestStorageDetectsATokenOfTwoClients(t *testing.T) {
	s := newStorage()
	for _, try := range []struct {
		token    uint64
		client   string
		accepted bool
	}{{5, "a", true}, {7, "b", true}, {5, "a", false}, {7, "b", true}} {
		if err := s.write(try.token, try.client, 0, 1); (err == nil) != try.accepted {
			t.Errorf("token %d of %s: got error %v, want accepted %t", try.token, try.client, err, try.accepted)
		}
	}
	expect.Succeed(t, s.verify())
	_, err := s.load(7, "c")
	must.Succeed(t, err)
	if err := s.verify(); err == nil {
		t.Error("two clients with the same token: got no error")
	}
}
