package examples

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var (
	faultCount = flag.Int("faults", len(faultKinds), "the number of faults that each workload survives")
	faultSeed  = flag.Uint64("seed", 1, "the seed of the order of the faults")
)

// workloads are the examples with the resources that must have writes after each fault.
var workloads = map[string][]string{
	"device-owner": {"device"},
	"lock-service": {"lock/a", "lock/b"},
}

// faultKinds are the faults. Each ends when the rest has agreed on another coordinator.
var faultKinds = []struct {
	name          string
	agent, worker bool
	signal        syscall.Signal
}{
	{"killed agent", true, false, syscall.SIGKILL},
	{"killed process", false, true, syscall.SIGKILL},
	{"killed both", true, true, syscall.SIGKILL},
	{"paused agent", true, false, syscall.SIGSTOP},
	{"paused process", false, true, syscall.SIGSTOP},
	{"paused both", true, true, syscall.SIGSTOP},
	{"killed ledger", false, false, syscall.SIGKILL},
}

func TestWorkloads(t *testing.T) {
	folder := buildWorkloads(t)
	type part struct {
		name string
		test func(t *testing.T, folder string)
	}
	parts := []part{
		{"survive faults", testFaults},
		{"reject late writes", testLateWrites},
		{"explain wrong arguments", testUsageErrors},
	}
	const many = 100
	if *faultCount >= many {
		parts = append(parts, part{"need fencing", testFaultsWithoutFencing})
	}
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) { part.test(t, folder) })
	}
}

func testFaults(t *testing.T, folder string) {
	for name, resources := range workloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorkload(t, filepath.Join(folder, name), "")
			w.awaitWrites(1, resources...)
			rng := rand.New(rand.NewPCG(*faultSeed, 0))
			start := time.Now()
			for i, kind := range faultOrder(rng, *faultCount) {
				victim := w.awaitCoordinator()
				w.injectFault(kind, victim)
				// The next fault hits the group in another phase.
				w.awaitWrites(1+rng.Uint64N(5), resources...)
				t.Logf("fault %d, %s of %s: %s", i+1, faultKinds[kind].name, victim, w.describe())
			}
			v := w.checkInvariant(t.Context())
			expect.AtLeastf(t, v.Tokens, 3, "tokens, one for each coordinator")
			t.Logf("%d faults in %s: %s", *faultCount, time.Since(start).Round(time.Millisecond), v.String())
			w.checkCommand()
		})
	}
}

// testFaultsWithoutFencing checks that faults alone violate the invariant sooner or later,
// if the ledger doesn't check tokens. It uses the workload that writes all the time: the
// others are seldom paused in the few milliseconds in which a write becomes a late one.
func testFaultsWithoutFencing(t *testing.T, folder string) {
	w := startWorkload(t, filepath.Join(folder, "device-owner"), serveInTest(t, openLedger(t, false)))
	rng := rand.New(rand.NewPCG(*faultSeed, 0))
	for i, kind := range faultOrder(rng, *faultCount) {
		if faultKinds[kind].agent || faultKinds[kind].worker {
			w.injectFault(kind, w.awaitCoordinator())
		}
		if v, err := w.verdict(t.Context()); err == nil && !v.OK {
			t.Logf("after %d faults: %s", i+1, v.String())
			return
		}
	}
	t.Errorf("got no violation after %d faults without fencing", *faultCount)
}

// faultOrder contains each kind once before it repeats one.
func faultOrder(rng *rand.Rand, count int) (order []int) {
	for len(order) < count {
		order = append(order, rng.Perm(len(faultKinds))...)
	}
	return order[:count]
}

// injectFault injects a fault into a process and its agent, waits until it has an effect, and repairs it.
func (w *workload) injectFault(kind int, victim string) {
	w.t.Helper()
	fault := faultKinds[kind]
	process := w.processes[victim]
	if !fault.agent && !fault.worker {
		process = w.ledger
	}
	kill := fault.signal == syscall.SIGKILL
	if kill && process != nil && (fault.worker || process == w.ledger) {
		process.kill()
	} else if fault.worker {
		process.signal(fault.signal)
	}
	if fault.agent {
		must.Succeed(w.t, w.breakAgent(victim, fault.signal))
	}
	if fault.agent || fault.worker {
		w.awaitCoordinator(slices.DeleteFunc(w.Names(), func(name string) bool { return name == victim })...)
	}
	if fault.agent {
		must.Succeed(w.t, w.repairAgent(victim, fault.signal))
	}
	if kill && (fault.worker || process == w.ledger) {
		process.start()
	} else if fault.worker {
		process.signal(syscall.SIGCONT)
	}
	w.awaitCoordinator()
}

func (w *workload) breakAgent(name string, signal syscall.Signal) error {
	if signal == syscall.SIGSTOP {
		_, err := w.Agent(name).Stop()
		return err
	}
	_, err := w.Agent(name).Kill()
	return err
}

func (w *workload) repairAgent(name string, signal syscall.Signal) error {
	if signal == syscall.SIGSTOP {
		return w.Agent(name).Continue()
	}
	return w.Agent(name).Start()
}

// describe returns the verdict, or the error.
func (w *workload) describe() string {
	v, err := w.verdict(w.t.Context())
	if err != nil {
		return err.Error()
	}
	return v.String()
}

// checkCommand runs the subcommand check, as users do.
func (w *workload) checkCommand() {
	w.t.Helper()
	p := newProgram(w.t, "check", w.binary, "check", w.ledgerURL)
	p.start()
	err := p.command.Wait()
	p.command = nil
	output := p.text()
	if err != nil || strings.Count(output, "\n") != 1 || !strings.HasPrefix(output, "holds: ") {
		w.t.Errorf("check: %v: %q", err, output)
	}
}

// testLateWrites delays a write until another process has written under a later right. The ledger must reject it.
// Without the fencing check of the ledger, the checker must report it.
func testLateWrites(t *testing.T, folder string) {
	for name, resource := range map[string]string{"device-owner": "device", "lock-service": "lock/a"} {
		for _, fenced := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,fenced=%t", name, fenced), func(t *testing.T) {
				t.Parallel()
				testLateWrite(t, filepath.Join(folder, name), resource, fenced)
			})
		}
	}
}

func testLateWrite(t *testing.T, binary, resource string, fenced bool) {
	t.Helper()
	l := &lateWrites{resource: resource, ledger: openLedger(t, fenced), answered: make(chan struct{})}
	want := http.StatusOK
	if fenced {
		want = http.StatusConflict
	}
	w := startWorkload(t, binary, serveInTest(t, l))
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	must.Succeed(t, agentcluster.Await(ctx, func(context.Context) error { return l.checkDelayed() }))
	// Only another coordinator writes to the device. And another one must not grant the lock, which is still held.
	must.Succeed(t, w.Restart(w.awaitCoordinator()))
	must.Succeed(t, agentcluster.Await(ctx, func(context.Context) error {
		if got := l.status(); got != want {
			return fmt.Errorf("got status %d for the late write, want %d", got, want)
		}
		return nil
	}))
	v, err := w.verdict(w.t.Context())
	must.Succeed(t, err)
	if v.OK != fenced {
		t.Errorf("got %q, want the invariant to hold: %t", v.String(), fenced)
	}
	t.Log(v.String())
}
