package agents

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// attackLease is long, so that no agent loses the office because the machine is busy.
const attackLease = 6 * time.Second

// attackFrames is the number of frames of each attack.
const attackFrames = 2000

// attackTest is a group of five agents, of which the lowest is played by an attacker.
type attackTest struct {
	*testGroup
	victims  []string
	attacker *attacker
	observer *officeObserver
}

// startAttackTest starts the agents and the attacker, whose priority is given.
func startAttackTest(t *testing.T, mode string, lease time.Duration, priority uint32) *attackTest {
	group := newGroup(t, agentcluster.Options{Agents: 5, TLS: true, Group: agentcluster.Group{
		Safety:     agentcluster.Safety{Mode: mode, LeaseMillis: int32(lease.Milliseconds())},
		Preemption: agentcluster.Preemption{Policy: "Never"},
		Timing: agentcluster.Timing{
			HeartbeatMillis: 100, SuspicionTimeoutMillis: new(int32(lease.Milliseconds() * 5 / 6)),
			DrainMillis: new(int32(1000)),
		},
	}})
	for _, name := range group.Names() {
		group.check(group.WriteConfig(name, func(f *agentcluster.File) { f.Groups[0].Members[0].Priority = priority }))
	}
	a := &attackTest{testGroup: group, victims: group.Names()[1:]}
	a.start(a.victims...)
	a.awaitCoordinator()
	if mode != "Available" { // There, each member that believes the attacker's suspicions is coordinator.
		a.observer = observeOffice(t, a.Cluster, a.victims...)
	}
	a.attacker = startAttacker(t, a.Cluster, "a", 1, a.victims)
	testwait.Until(t, "the attacker is connected", func() bool { return a.attacker.ready(a.victims) })
	return a
}

// TestMemberCannotEndTenure: a process with the certificate of a member sends false, repeated and
// random messages. The coordinator remains, and agents neither crash nor grow.
func TestMemberCannotEndTenure(t *testing.T) {
	modes := []string{"Majority", "Strict"}
	if testing.Short() {
		modes = modes[:1]
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := startAttackTest(t, mode, attackLease, 10)
			coordinator, memory := a.awaitCoordinator(), a.memory()
			for _, name := range slices.Sorted(maps.Keys(attacks)) {
				_, vacantBefore, tenures := a.observer.measure()
				a.attacker.use(attacks[name])
				testwait.Until(t, name, func() bool { return a.attacker.count() > attackFrames })
				if _, vacant, now := a.observer.measure(); now != tenures || vacant != vacantBefore {
					t.Errorf("%s: got %d more tenures and no coordinator for %v, want the tenure of %s to continue",
						name, now-tenures, vacant-vacantBefore, coordinator)
				}
			}
			if now := a.memory(); now > memory+grownMax {
				t.Errorf("got %g bytes of memory in an agent after %g, want at most %d more", now, memory, grownMax)
			}
			observed, vacant, _ := a.observer.measure()
			t.Logf("%v of %v without a coordinator", vacant, observed)
		})
	}
}

// TestObserverCannotPreventElection: the coordinator crashes while a process with the certificate
// of an observer sends false, repeated and random messages. The others elect the next one. (A
// member that isn't an observer can be elected itself.)
func TestObserverCannotPreventElection(t *testing.T) {
	need.Complete(t)
	for _, mode := range []string{"Available", "Majority", "Strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := startAttackTest(t, mode, 2*time.Second, 0)
			for _, name := range slices.Sorted(maps.Keys(attacks)) {
				coordinator := a.awaitCoordinator(a.victims...)
				testwait.Until(t, "the attacker is connected", func() bool { return a.attacker.ready(a.victims) })
				a.attacker.use(attacks[name])
				testwait.Until(t, name, func() bool { return a.attacker.count() > attackFrames/10 })
				crashedAt := a.kill(coordinator)
				rest := slices.DeleteFunc(slices.Clone(a.victims), func(victim string) bool { return victim == coordinator })
				next := a.awaitCoordinator(rest...)
				t.Logf("%s: %s crashed, and the others agreed on %s after %v", name, coordinator, next,
					time.Since(crashedAt).Round(time.Millisecond))
				a.attacker.use(nil)
				a.start(coordinator)
			}
		})
	}
}

// grownMax is by how many bytes the memory of an agent may grow. The race detector
// needs several times as much as the agent itself.
const grownMax = 64 << 20

// memory returns the largest number of bytes that a victim uses.
func (a *attackTest) memory() (largest float64) {
	a.t.Helper()
	for _, name := range a.victims {
		largest = max(largest, a.metric(name, "process_resident_memory_bytes"))
	}
	return largest
}

// TestRequestLoopsKeepTheCoordinator: 200 connections of a program in the coordinator's pod ask for the same over and
// over, without a pause. The coordinator's agent has one processor for them and for the election.
func TestRequestLoopsKeepTheCoordinator(t *testing.T) {
	const connections, during = 200, 3 * time.Second
	for path, most := range map[string]int64{
		"leader":  500*3 + 50 + connections,
		"journal": 50*3 + 10 + connections*3, // Refusals follow after a second.
	} {
		t.Run(path, func(t *testing.T) {
			agents := newSteadyGroup(t)
			agents.startConnected()
			const coordinator = "c"
			agents.coordinate(coordinator)
			before := agents.leader(coordinator)
			begin := time.Now()
			n := requestInLoops(agents.ctx, t,
				"http://"+agents.Agent(coordinator).API+"/v1/groups/ledger/"+path, connections, during)
			// A busy machine may take longer than asked for.
			if most = most * int64(time.Since(begin)) / int64(during); n == 0 || n > most {
				t.Errorf("got %d responses in %s, want at most %d", n, during, most)
			}
			// On a machine that stalls, the lease may end for that reason; the process must lead again.
			agents.awaitCoordinator()
			after := agents.leader(coordinator)
			t.Logf("%d responses, term %d and then %d", n, before.Term, after.Term)
			expect.Equalf(t, before.Term, after.Term, "term")
		})
	}
}

// requestInLoops sends requests on a number of connections, each as soon as it has the response to the one before. It
// returns the number of responses.
func requestInLoops(ctx context.Context, t *testing.T, url string, connections int, during time.Duration) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	var responses atomic.Int64
	var loops sync.WaitGroup
	for range connections {
		loops.Go(func() {
			for ctx.Err() == nil {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := client.Do(request)
				if err != nil {
					continue // The time is over, or the agent has closed the connection.
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				responses.Add(1)
			}
		})
	}
	loops.Wait()
	return responses.Load()
}
