package controllerruntime

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// TestOneManagerAtATime: whatever happens to the leader, the other replica reconciles, and no line with an older token follows.
func TestOneManagerAtATime(t *testing.T) {
	e := newEnv(t, "Strict")
	clients := kubernetes.NewForConfigOrDie(e.api.Config)
	_, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{})
	must(t, err)
	for _, member := range replicas {
		e.start(member)
	}
	token, leader := e.await(0)

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
			strike: func(leader string) { must(t, e.managers[leader].Process.Kill()) },
			status: -1,
		},
		{
			name:   "the process is terminated",
			strike: func(leader string) { must(t, e.managers[leader].Process.Signal(syscall.SIGTERM)) },
		},
		{
			name: "the office is handed over",
			strike: func(leader string) {
				must(t, agentcluster.Await(e.context(), func(ctx context.Context) error {
					_, err := e.StepDown(ctx, leader, other(leader))
					return err
				}))
			},
			status: 1, output: "this process is no longer coordinator of group ledger",
		},
		{
			name: "the agent is killed",
			strike: func(leader string) {
				_, err := e.Agent(leader).Kill()
				must(t, err)
			},
			status: 1,
			mend:   func(leader string) { must(t, e.Restart(leader)) },
		},
		{
			name: "the agent is stopped",
			strike: func(leader string) {
				_, err := e.Agent(leader).Stop()
				must(t, err)
			},
			status: 1,
			mend:   func(leader string) { must(t, e.Agent(leader).Continue()) },
		},
	} {
		fault.strike(leader)
		e.awaitEnd(leader, fault.status)
		if log := e.managers[leader].log.String(); !strings.Contains(log, fault.output) {
			t.Errorf("%s: got log %q, want %q", fault.name, log, fault.output)
		}
		former := leader
		token, leader = e.await(token)
		if leader != other(former) {
			t.Errorf("%s: got leader %q, want %q", fault.name, leader, other(former))
		}
		if len(e.overlaps) > 0 {
			t.Fatalf("%s: safety violated: %s", fault.name, e.overlaps[0])
		}
		if fault.mend != nil {
			fault.mend(former)
		}
		e.start(former)
		must(t, e.AwaitConnected(e.context()))
	}

	t.Run("the API server is away", func(t *testing.T) { testWithoutAPIServer(e.withT(t), leader, token) })
	leases, err := clients.CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(leases.Items) > 0 {
		t.Errorf("got leases %v, want none", leases.Items)
	}
}

// withT returns the same env for a subtest.
func (e *env) withT(t testing.TB) *env {
	of := *e
	of.t = t
	return &of
}

// testWithoutAPIServer: a leader goes on, and a standby takes over, from its cache.
func testWithoutAPIServer(e *env, leader string, token uint64) {
	must(e.t, e.api.ControlPlane.APIServer.Stop())
	e.awaitWork(int(10 * time.Second / workEvery / 2))
	must(e.t, e.managers[leader].Process.Kill())
	e.awaitEnd(leader, -1)
	if _, got := e.await(token); got != other(leader) {
		e.t.Errorf("got leader %q, want %q", got, other(leader))
	}
	e.awaitWork(100)
	must(e.t, e.api.ControlPlane.APIServer.Start())
}

// TestManagerThatDoesNotStopEnds: the process ends before the drain timeout does.
func TestManagerThatDoesNotStopEnds(t *testing.T) {
	e := newEnv(t, "Majority")
	for _, member := range replicas {
		e.start(member, stuckVariable+"=true")
	}
	awaitFirst := func(above uint64) (uint64, string) {
		for {
			e.awaitLine()
			if l := e.last(); l.token > above {
				return l.token, e.memberOf(l.pid)
			}
		}
	}
	token, leader := awaitFirst(0)
	must(t, agentcluster.Await(e.context(), func(ctx context.Context) error {
		_, err := e.StepDown(ctx, leader, other(leader))
		return err
	}))
	e.awaitEnd(leader, 1)
	awaitFirst(token)
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
	e.awaitLine()
	first := e.last()
	leader := e.memberOf(first.pid)
	must(t, e.managers[leader].Process.Signal(syscall.SIGSTOP))
	for e.last().token == first.token {
		e.awaitLine()
	}
	if len(e.overlaps) > 0 {
		t.Errorf("safety violated: %s", e.overlaps[0])
	}
	must(t, e.managers[leader].Process.Signal(syscall.SIGCONT))
	e.awaitEnd(leader, 1)
	e.read()
	t.Logf("%d lines with an older token after the process continued", len(e.overlaps))
}
