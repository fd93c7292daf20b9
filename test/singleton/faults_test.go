package singleton

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/safety"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

var (
	faults = flag.Int("faults", len(kinds), "number of faults in each safety mode")
	seed   = flag.Uint64("seed", 1, "seed of the order of the faults")
)

const (
	kill = syscall.SIGKILL
	stop = syscall.SIGSTOP
)

// fault is a signal for some of the processes of the coordinator.
type fault struct {
	signal  syscall.Signal
	targets []string
	// replaces: the program must end, and another one begin.
	replaces bool
}

const (
	wrapper = "wrapper"
	guard   = "guard"
	agent   = "agent"
	// standby is the wrapper of another member than the coordinator: the next coordinator, if it is the one with the
	// highest priority.
	standby = "standby"
)

// kinds are all single faults, and the pairs of which one is enough to kill the program.
var kinds = []fault{
	{kill, []string{wrapper}, true},
	{stop, []string{wrapper}, true},
	{kill, []string{guard}, true},
	{stop, []string{guard}, true},
	{kill, []string{agent}, true},
	{stop, []string{agent}, true},
	{kill, []string{roleMain}, true},
	{stop, []string{roleMain}, true},
	{kill, []string{roleChild}, false},
	{stop, []string{roleChild}, false},
	{kill, []string{roleDaemon}, false},
	{stop, []string{roleDaemon}, false},
	{stop, []string{agent, wrapper}, true},
	{stop, []string{agent, guard}, true},
	{kill, []string{wrapper, roleMain}, true},
	{syscall.SIGTERM, []string{wrapper}, true},
	{0, []string{"step-down"}, true},
	{stop, []string{standby, wrapper}, true},
}

func (f *fault) String() string {
	switch f.signal {
	case kill:
		return fmt.Sprintf("kill %v", f.targets)
	case stop:
		return fmt.Sprintf("stop %v", f.targets)
	}
	return fmt.Sprintf("signal %d for %v", f.signal, f.targets)
}

// TestOneProgramAtATime: the programs of different tenures never run at the same time, whatever is killed or stopped.
// The exception is an agent that is killed in Majority mode: its successor doesn't wait for the program. On a busy
// machine, neither wrapper nor guard may get CPU time before the lease ends. They must log this.
func TestOneProgramAtATime(t *testing.T) {
	for mode, hideCgroups := range map[string]bool{"Strict": true, "Majority": false} {
		t.Run(mode, func(t *testing.T) {
			if hideCgroups {
				agentcluster.NeedPartitions(t) // They need the same rights.
			}
			e := newEnv(t, agentcluster.Group{
				Safety: agentcluster.Safety{Mode: mode, LeaseMillis: 500},
				Timing: agentcluster.Timing{DrainMillis: new(int32(1000))},
			})
			e.hideCgroups = hideCgroups
			for _, name := range e.Names() {
				e.startWrapper(name)
			}
			e.awaitProgram(0)
			rng := rand.New(rand.NewPCG(*seed, 0))
			var order []int
			for len(order) < *faults {
				order = append(order, rng.Perm(len(kinds))...)
			}
			start, late := time.Now(), 0
			for i, kind := range order[:*faults] {
				e.deaf = i%2 == 1 // of programs whose wrapper is started from now on
				overlaps, before := e.overlaps, len(e.lateKills())
				took := e.inject(&kinds[kind])
				t.Logf("fault %d, %s: %s", i+1, kinds[kind].String(), took.Round(time.Millisecond))
				older := e.olderRun()
				switch overlaps = e.overlaps - overlaps; {
				case overlaps == 0 && older == "":
				case mode == "Majority" && kinds[kind].signal == kill && kinds[kind].targets[0] == agent:
				default:
					testwait.Until(t, "the former programs have ended", func() bool { return e.olderRun() == "" })
					if testwait.Within(time.Second, time.Millisecond, func() bool { return len(e.lateKills()) > before }) {
						late++
						continue
					}
					t.Fatalf("%s%d writes of two programs at a time: %s; %s", safety.Violated, overlaps, e.firstOverlap, older)
				}
			}
			t.Logf("%d faults in %s: %d tenures, %d writes, %d of them with an outdated token; wrappers and guards were "+
				"too late after %d faults",
				*faults, time.Since(start).Round(time.Millisecond), len(e.seen), e.lines, e.overlaps, late)
			if len(e.seen) < *faults/2 {
				t.Errorf("got %d tenures, want more for %d faults", len(e.seen), *faults)
			}
		})
	}
}

// inject injects a fault into the processes of the coordinator, waits for its effect, and repairs it.
func (e *env) inject(f *fault) (took time.Duration) {
	e.t.Helper()
	token := e.awaitProgram(e.highest - 1)
	victim := e.members[token]
	pids := map[string]int{wrapper: e.wrappers[victim].Process.Pid, guard: e.guard(
		victim), standby: e.wrappers[e.successorOf(victim)].Process.Pid}
	maps.Copy(pids, e.seen[token])
	start := time.Now()
	for _, target := range f.targets {
		switch {
		case target == "step-down":
			e.stepDown(victim)
		case target == agent && f.signal == stop:
			_, err := e.Agent(victim).Stop()
			must.Succeed(e.t, err)
		case target == agent:
			_, err := e.Agent(victim).Kill()
			must.Succeed(e.t, err)
		default:
			_ = syscall.Kill(pids[target], f.signal) // A fault before may have ended it.
		}
	}
	if f.replaces {
		e.awaitProgram(token)
	} else {
		e.awaitWrites()
	}
	took = time.Since(start)
	e.repair(f, victim, pids)
	return took
}

// successorOf returns the member with the highest priority besides the coordinator.
func (e *env) successorOf(coordinator string) string {
	names := slices.DeleteFunc(slices.Clone(e.Names()), func(name string) bool { return name == coordinator })
	return slices.Max(names)
}

func (e *env) repair(f *fault, victim string, pids map[string]int) {
	e.t.Helper()
	for _, target := range f.targets {
		switch {
		case target == agent && f.signal == stop:
			must.Succeed(e.t, e.Agent(victim).Continue())
		case target == agent:
			must.Succeed(e.t, e.Agent(victim).Start())
		case target == wrapper && f.signal != stop:
			<-e.ended[victim]
			e.startWrapper(victim)
		case f.signal == stop:
			_ = syscall.Kill(pids[target], syscall.SIGCONT) // It may have been killed.
		}
	}
	must.Succeed(e.t, e.AwaitConnected(testwait.Context(e.t)))
	e.awaitProgram(e.highest - 1)
	e.awaitWrites()
}

var lateKill = regexp.MustCompile(`the program has ended too late.* late=(\S+)`)

// lateKills returns by how much wrappers have killed programs too late.
func (e *env) lateKills() (late []string) {
	e.t.Helper()
	text := must.ReadFile(e.t, e.file+".log")
	for _, match := range lateKill.FindAllSubmatch(text, -1) {
		late = append(late, string(match[1]))
	}
	return late
}
