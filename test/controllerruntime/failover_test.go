package controllerruntime

import (
	"flag"
	"slices"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestOneManagerAtATime: whatever happens to the leader, the other replica reconciles, and no line with an older token follows.
func TestOneManagerAtATime(t *testing.T) {
	e := newEnv(t, "Strict")
	for _, member := range replicas {
		e.start(member)
	}
	first, leader := e.await(0)

	for _, fault := range []struct {
		name   string
		strike func(leader string)
		// status is that of the manager's process, and output what its log contains.
		status int
		output string
		// mend undoes what the manager's end doesn't.
		mend func(leader string)
	}{
		{
			name:   "the process is killed",
			strike: func(leader string) { must.Succeed(t, e.managers[leader].Process.Kill()) },
			status: -1,
		},
		{
			name:   "the process is terminated",
			strike: func(leader string) { must.Succeed(t, e.managers[leader].Process.Signal(syscall.SIGTERM)) },
		},
		{
			name:   "the office is handed over",
			strike: e.stepDown,
			status: 1, output: "this process is no longer coordinator of group ledger",
		},
		{
			name: "the agent is killed",
			strike: func(leader string) {
				_, err := e.Agent(leader).Kill()
				must.Succeed(t, err)
			},
			status: 1,
			mend:   func(leader string) { must.Succeed(t, e.Restart(leader)) },
		},
		{
			name: "the agent is stopped",
			strike: func(leader string) {
				_, err := e.Agent(leader).Stop()
				must.Succeed(t, err)
			},
			status: 1,
			mend:   func(leader string) { must.Succeed(t, e.Agent(leader).Continue()) },
		},
	} {
		e.awaitReady(other(leader))
		fault.strike(leader)
		e.awaitEnd(leader, fault.status)
		expect.Containsf(t, e.managers[leader].log.String(), fault.output, "%s: log", fault.name)
		former := leader
		first, leader = e.await(first.token)
		expect.Equalf(t, leader, other(former), "%s: leader", fault.name)
		if len(e.overlaps) > 0 {
			t.Fatalf("%s: safety violated: %s", fault.name, e.overlaps[0])
		}
		if fault.mend != nil {
			fault.mend(former)
		}
		e.start(former)
		must.Succeed(t, e.AwaitConnected(testwait.Context(t)))
	}

	leases, err := kubernetes.NewForConfigOrDie(e.api.Config).CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	expect.Lenf(t, leases.Items, 0, "leases")

	// Without the API server, the leader goes on, longer than it would with a Lease, and the standby takes over, from its cache.
	e.awaitReady(other(leader))
	e.killAPIServer()
	for left := *outage; left > 0; left -= time.Second {
		e.awaitWork(int(time.Second / workEvery))
	}
	must.Succeed(t, e.managers[leader].Process.Kill())
	if _, got := e.await(first.token); got != other(leader) {
		t.Errorf("got leader %q without the API server, want %q", got, other(leader))
	}
	e.awaitWork(100)
}

var outage = flag.Duration("outage", 16*time.Second, "how long the API server is away, by default longer than a Lease is valid")

// TestManagerThatDoesNotStopEnds: the process ends before the drain timeout does.
func TestManagerThatDoesNotStopEnds(t *testing.T) {
	e := newEnv(t, "Majority")
	for _, member := range replicas {
		e.start(member, stuckVariable+"=true")
	}
	first, leader := e.await(0)
	e.awaitReady(other(leader))
	e.stepDown(leader)
	e.awaitEnd(leader, 1)
	e.await(first.token)
	if len(e.overlaps) > 0 {
		t.Errorf("safety violated: %s", e.overlaps[0])
	}
}

// TestFrozenManagerEnds: the other replica takes over from a process that was stopped, which ends when it continues. What it
// writes before that has an older token.
func TestFrozenManagerEnds(t *testing.T) {
	e := newEnv(t, "Majority")
	for _, member := range replicas {
		e.start(member)
	}
	first, leader := e.await(0)
	e.awaitReady(other(leader))
	must.Succeed(t, e.managers[leader].Process.Signal(syscall.SIGSTOP))
	e.await(first.token)
	if len(e.overlaps) > 0 {
		t.Errorf("safety violated: %s", e.overlaps[0])
	}
	must.Succeed(t, e.managers[leader].Process.Signal(syscall.SIGCONT))
	e.awaitEnd(leader, 1)
	e.read()
	t.Logf("%d lines with an older token after the process continued", len(e.overlaps))
}

// BenchmarkFailover measures the time from SIGKILL of the leader until the other replica has reconciled.
func BenchmarkFailover(b *testing.B) {
	e := newEnv(b, "Majority")
	for _, member := range replicas {
		e.start(member)
	}
	first, leader := e.await(0)
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		e.awaitReady(other(leader))
		time.Sleep(time.Second) // The standby looks every 100 ms whether its sources have synced, and doesn't tell.
		b.StartTimer()
		start := time.Now()
		must.Succeed(b, e.managers[leader].Process.Kill())
		former := leader
		first, leader = e.await(first.token)
		took = append(took, time.Unix(0, first.nanos).Sub(start))
		b.StopTimer()
		e.start(former)
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms/max")
	b.ReportMetric(0, "ns/op") // It includes the start of a manager.
}
