package controllerruntime

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/controllerruntime"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestOneManagerAtATime: whatever happens to the leader, the other replica reconciles, and no line with an older token
// follows.
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
	}{{
		name:   "the process is killed",
		strike: func(leader string) { must.Succeed(t, e.managers[leader].Process.Kill()) },
		status: -1,
	}, {
		name:   "the process is terminated",
		strike: func(leader string) { must.Succeed(t, e.managers[leader].Process.Signal(syscall.SIGTERM)) },
	}, {
		name:   "the office is handed over",
		strike: e.stepDown,
		status: 1, output: "this process is no longer coordinator of group ledger",
	}, {
		name: "the agent is killed",
		strike: func(leader string) {
			_, err := e.Agent(leader).Kill()
			must.Succeed(t, err)
		},
		status: 1,
		mend:   func(leader string) { must.Succeed(t, e.Restart(leader)) },
	}, {
		name: "the agent is stopped",
		strike: func(leader string) {
			_, err := e.Agent(leader).Stop()
			must.Succeed(t, err)
		},
		status: 1,
		mend:   func(leader string) { must.Succeed(t, e.Agent(leader).Continue()) },
	}} {
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

	leases, err := kubernetes.NewForConfigOrDie(e.api.Config).CoordinationV1().Leases("default").List(t.Context(),
		metav1.ListOptions{})
	must.Succeed(t, err)
	expect.Lenf(t, leases.Items, 0, "leases")

	// Without the API server, the leader goes on, longer than it would with a Lease, and the standby takes over, from its
	// cache.
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

var outage = flag.Duration("outage", 16*time.Second,
	"how long the API server is away, by default longer than a Lease is valid")

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

// TestFrozenManagerEnds: the other replica takes over from a process that was stopped, which ends when it continues.
// What it writes before that has an older token.
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

// The manager under test is this test program with these variables.
const (
	agentVariable      = "MANAGER_AGENT"
	fileVariable       = "MANAGER_FILE"
	kubeconfigVariable = "MANAGER_KUBECONFIG"
	// stuckVariable is set for a manager whose controller ignores that it must stop.
	stuckVariable = "MANAGER_STUCK"
)

// What a line of the file says.
const (
	reconciled = "reconciled"
	worked     = "worked"
	// warm: the manager's caches are filled.
	warm = "warm"
)

const workEvery = time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv(agentVariable) != "" {
		if err := runManager(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	agentcluster.Main(m)
}

// runManager runs a manager with a controller for ConfigMaps, and a runnable that works all the time. Both append lines
// to a file.
func runManager() error {
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(kubeconfigVariable))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(os.Getenv(fileVariable), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	election := controllerruntime.New("ledger", client.At(os.Getenv(agentVariable)))
	mgr, err := ctrl.NewManager(config, election.Options(ctrl.Options{Metrics: server.Options{BindAddress: "0"}}))
	if err != nil {
		return err
	}
	write := func(what string) error {
		_, err := fmt.Fprintln(file, election.Token(), os.Getpid(), what, time.Now().UnixNano())
		return err
	}
	err = errors.Join(
		ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, write(reconciled)
			})),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return work(ctx, write) })),
		mgr.Add(always{func(ctx context.Context) error {
			if _, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
				return err
			}
			return write(warm)
		}}),
	)
	if err != nil {
		return err
	}
	return election.Run(ctrl.SetupSignalHandler(), mgr.Start)
}

// always is a runnable that doesn't wait until the manager is elected.
type always struct{ manager.RunnableFunc }

func (always) NeedLeaderElection() bool { return false }

func work(ctx context.Context, write func(string) error) error {
	tick := time.NewTicker(workEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if os.Getenv(stuckVariable) == "" {
				return nil
			}
			ctx = context.WithoutCancel(ctx)
		case <-tick.C:
			if err := write(worked); err != nil {
				return err
			}
		}
	}
}
