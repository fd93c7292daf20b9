package agents

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// attackLease is long, so that no agent loses the office because the machine is busy.
const attackLease = 6 * time.Second

// attackFrames is the number of frames of each attack.
const attackFrames = 2000

// attackTest is a group of five agents, of which the lowest is played by an attacker.
type attackTest struct {
	t        *testing.T
	ctx      context.Context
	cluster  *agentcluster.Cluster
	victims  []string
	attacker *attacker
	observer *officeObserver
}

// startAttackTest starts the agents and the attacker, whose priority is given.
func startAttackTest(t *testing.T, mode string, lease time.Duration, priority uint32) *attackTest {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	cluster := agentcluster.Start(t, agentcluster.Options{Agents: 5, TLS: true, Group: agentcluster.Group{
		Safety:     &agentcluster.Safety{Mode: mode, LeaseMillis: int(lease.Milliseconds())},
		Preemption: &agentcluster.Preemption{Policy: "Never"},
		Timing:     &agentcluster.Timing{HeartbeatMillis: 100, PatienceMillis: int(lease.Milliseconds()) * 5 / 6, DrainMillis: 1000},
	}})
	for _, name := range cluster.Names() {
		must.Succeed(t, cluster.WriteConfig(name, func(f *agentcluster.File) { f.Groups[0].Members[0].Priority = priority }))
	}
	a := &attackTest{t: t, ctx: ctx, cluster: cluster, victims: cluster.Names()[1:]}
	must.Succeed(t, cluster.Start(a.victims...))
	a.awaitCoordinator()
	if mode != "Available" { // There, each member that believes the attacker's suspicions is coordinator.
		a.observer = observeOffice(t, cluster, a.victims...)
	}
	a.attacker = startAttacker(t, cluster, "a", 1, a.victims)
	testwait.Until(t, "the attacker is connected", func() bool { return a.attacker.ready(a.victims) })
	return a
}

func (a *attackTest) awaitCoordinator(among ...string) string {
	a.t.Helper()
	coordinator, err := a.cluster.AwaitCoordinator(a.ctx, among...)
	must.Succeed(a.t, err)
	return coordinator
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
				t.Errorf("got %d KiB of memory in an agent after %d KiB, want at most %d more", now, memory, grownMax)
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
				crashedAt, err := a.cluster.Agent(coordinator).Kill()
				must.Succeed(t, err)
				rest := slices.DeleteFunc(slices.Clone(a.victims), func(victim string) bool { return victim == coordinator })
				next := a.awaitCoordinator(rest...)
				t.Logf("%s: %s crashed, and the others agreed on %s after %v", name, coordinator, next, time.Since(crashedAt).Round(time.Millisecond))
				a.attacker.use(nil)
				must.Succeed(t, a.cluster.Start(coordinator))
			}
		})
	}
}

// grownMax is by how much the memory of an agent may grow, in KiB. The race detector
// needs several times as much as the agent itself.
const grownMax = 64 << 10

// memory returns the largest amount of memory that a victim uses, in KiB.
func (a *attackTest) memory() int {
	a.t.Helper()
	largest := 0
	for _, name := range a.victims {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(a.cluster.Agent(name).PID()) + "/status")
		must.Succeed(a.t, err)
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		size, err := strconv.Atoi(strings.Fields(rest)[0])
		must.Succeed(a.t, err)
		largest = max(largest, size)
	}
	return largest
}
