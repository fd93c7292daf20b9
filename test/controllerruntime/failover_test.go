package controllerruntime

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
	"github.com/conclave-dev/conclave/internal/testing/need"
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
	e.signalAPIServer(syscall.SIGKILL)
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
		e.start(member, stuckVariable+"=true", againVariable+"=true")
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

// TestManagersLeaveNothing: a process that runs a manager for each of many tenures doesn't grow.
func TestManagersLeaveNothing(t *testing.T) {
	need.Complete(t)
	e := newAPI(t)
	agent := &fakeAgent{handOver: make(chan struct{})} // Agents let a member wait for seconds between two tenures.
	server := httptest.NewServer(agent)
	t.Cleanup(server.Close)
	e.startAt(server.URL, "a", againVariable+"=true")
	for token := uint64(1); ; token++ {
		first, _ := e.await(token - 1)
		expect.Equalf(t, first.token, token, "token")
		if token > uint64(*tenures) {
			break // The sizes have been written.
		}
		agent.handOver <- struct{}{}
	}
	for _, what := range []string{goroutines, heapBytes} {
		got, tenth := e.sizes[what], *tenures/10
		expect.Lenf(t, got, *tenures, "sizes")
		early, late := slices.Min(got[tenth:2*tenth]), slices.Min(got[len(got)-tenth:])
		t.Logf("%s: %d after %d tenures, %d after %d", what, early, tenth, late, len(got))
		if late > early+early/20 {
			t.Errorf("%s: got %d after %d tenures, want no more than %d: %d", what, late, len(got), early, got)
		}
	}
}

// fakeAgent makes each session coordinator, with its number as the term and the token.
type fakeAgent struct {
	term, led atomic.Uint64
	handOver  chan struct{}
}

func (f *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch _, path, _ := strings.Cut(r.URL.Path, "/v1/"); path {
	case "groups/ledger/session":
		term := f.term.Add(1)
		send := func(kind, data string, values ...any) {
			fmt.Fprintf(w, "event: %s\ndata: "+data+"\n\n", append([]any{kind}, values...)...)
			_ = http.NewResponseController(w).Flush() // The client has gone.
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send("session", `{"session":"%d","drainMillis":60000,"leaseMillis":60000}`, term)
		f.led.Store(term)
		send("lead", `{"term":%d,"token":%d}`, term, term)
		select {
		case <-f.handOver:
		case <-r.Context().Done():
		}
		f.led.Store(0)
		send("stop", `{"term":%d}`, term)
		<-r.Context().Done()
	case "renewals":
		const response = `{"results":[{"status":200,"leader":{"group":"ledger","self":"a","coordinator":"a","leading":%t,` +
			`"term":%d,"token":%[2]d,"remainingMillis":60000}}]}`
		fmt.Fprintf(w, response, f.led.Load() != 0, f.term.Load())
	}
}

var tenures = flag.Int("tenures", 200, "how many tenures a process has that runs a manager for each")

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
	// againVariable is set for a process that runs another manager after a tenure.
	againVariable = "MANAGER_AGAIN"
	// stuckVariable is set for a manager whose controller ignores that it must stop.
	stuckVariable = "MANAGER_STUCK"
)

// What a line of the file says.
const (
	reconciled = "reconciled"
	worked     = "worked"
	// warm: the manager's caches are filled.
	warm = "warm"
	// What the process has when no manager runs, in place of the time.
	goroutines, heapBytes = "goroutines", "heap"
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

// runManager runs a manager, or one after another.
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
	p := &program{election: election, config: config, file: file}
	ctx := ctrl.SetupSignalHandler()
	switch os.Getenv(kindVariable) {
	case kindPlain:
		return p.alone(ctx)
	case kindOld:
		return p.runOld(ctx)
	case kindClient:
		return p.runClient(ctx)
	case kindManager:
		return p.election.AlsoHold(config).RunManagers(ctx, p.newHolder)
	}
	if os.Getenv(againVariable) == "" {
		mgr, err := p.newManager()
		if err != nil {
			return err
		}
		return p.election.Run(ctx, mgr.Start)
	}
	check, err := p.serve(ctx)
	if err != nil {
		return err
	}
	return p.election.RunManagers(ctx, func() (manager.Manager, error) {
		if err := check(); err != nil {
			return nil, err
		}
		return p.newManager()
	})
}

// serve starts the manager that isn't elected, which serves metrics. The function that it returns is for when no other
// manager runs: metrics are still served, with those of the former managers' controllers. It also writes the size of
// the process.
func (p *program) serve(ctx context.Context) (check func() error, err error) {
	metrics, err := server.NewServer(server.Options{BindAddress: "127.0.0.1:0"}, p.config, http.DefaultClient)
	if err != nil {
		return nil, err
	}
	always, err := ctrl.NewManager(p.config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err == nil {
		err = always.Add(metrics)
	}
	go func() {
		if err := always.Start(ctx); err != nil {
			panic(err)
		}
	}()
	managers := 0
	return func() error {
		if managers++; managers == 1 {
			return nil
		}
		server, ok := metrics.(interface{ GetBindAddr() string })
		if !ok {
			return errors.New("the metrics server has no address")
		}
		response, err := http.Get("http://" + server.GetBindAddr() + "/metrics")
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		if !bytes.Contains(text, []byte(`controller_runtime_reconcile_total{controller="configmap"`)) {
			err = errors.New("metrics of the former manager are missing")
		}
		http.DefaultClient.CloseIdleConnections()
		for range 2 { // The first one leaves what a sync.Pool has.
			runtime.GC()
		}
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return errors.Join(err, response.Body.Close(), p.write(goroutines, int64(runtime.NumGoroutine())),
			p.write(heapBytes, int64(memory.HeapAlloc)))
	}, err
}

// program is the process of a manager.
type program struct {
	election *controllerruntime.Election
	config   *rest.Config
	file     *os.File
}

func (p *program) write(what string, number int64) error {
	token := p.election.Token()
	if os.Getenv(kindVariable) != "" {
		token = 0 // Others have none.
	}
	_, err := fmt.Fprintln(p.file, token, os.Getpid(), what, number)
	return err
}

func (p *program) writeNow(what string) error { return p.write(what, time.Now().UnixNano()) }

// newManager returns a manager with a controller for ConfigMaps, and a runnable that works all the time. Both append
// lines to the file.
func (p *program) newManager() (manager.Manager, error) {
	mgr, err := ctrl.NewManager(p.config, p.election.Options(ctrl.Options{Metrics: server.Options{BindAddress: "0"}}))
	if err != nil {
		return nil, err
	}
	return mgr, errors.Join(
		ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, p.writeNow(reconciled)
			})),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return work(ctx, p.writeNow) })),
		mgr.Add(always{func(ctx context.Context) error {
			if _, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
				return err
			}
			return p.writeNow(warm)
		}}),
	)
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
