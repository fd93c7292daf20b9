package main

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// startScheduler starts three real schedulers, whose Lease lasts for 2 s.
func startScheduler(t *testing.T) *replicas {
	t.Helper()
	agentcluster.NeedPartitions(t)
	need.APIServer(t)
	folder := t.TempDir()
	env := &environment{counted: true}
	must.Succeed(t, env.startServer(folder))
	t.Cleanup(func() {
		expect.Succeed(t, env.stop())
	})
	at := slices.IndexFunc(operators, func(o operator) bool { return o.name == "kube-scheduler" })
	of := operators[at]
	of.arguments = append(slices.Clone(of.arguments), "--leader-elect-lease-duration=2s",
		"--leader-elect-renew-deadline=1s", "--leader-elect-retry-period=300ms")
	file, _, err := of.program(os.Getenv("KUBEBUILDER_ASSETS"), false)
	must.Succeed(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: of.leaseNamespace}}
	s, err := newReplicas(t.Context(), &of, false, file, folder, env, namespace)
	must.Succeed(t, err)
	t.Cleanup(s.stop)
	return s
}

// Without its leader, the scheduler schedules nothing until its Lease has ended. A leader that is cut off comes back.
func TestOperatorReconcilesNothingWithoutLeader(t *testing.T) {
	s := startScheduler(t)
	for _, f := range []fault{faults[0], faults[3]} {
		if err := s.settle(t.Context(), time.Second); err != nil {
			t.Fatal(err, s.prober.lastError())
		}
		began := time.Now()
		gap, usual, err := s.round(t.Context(), f)
		must.Succeedf(t, err, "%s", f.name)
		// The Lease was renewed at most 0.3 s before. The leader may be renewing just then.
		if gap < time.Second || gap > time.Since(began)+usual || usual >= gap/2 {
			t.Errorf("%s: got a gap of %s, usually %s, want more than a second in a round of %s", f.name,
				gap, usual, time.Since(began))
		}
	}
}

// TestPickerIsAsked until one that is ready answers.
func TestPickerIsAsked(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server, service := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	p := &prober{probe: pickerProbe(), addresses: []string{listener.Addr().String()}}
	service.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	ready, err := p.probe.done(t.Context(), p, 0)
	expect.Equalf(t, ready, false, "a picker that isn't ready is (error %v)", err)
	service.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	ready, err = p.probe.done(t.Context(), p, 0)
	expect.Equalf(t, ready, true, "a picker that is ready is (error %v)", err)
}

func TestGapsAreThoseAfterTheFault(t *testing.T) {
	p := &prober{effects: []int64{10, 500, 600, 900, 950, 1400}}
	for since, want := range map[int64]time.Duration{0: 490, 500: 450, 899: 450, 1400: 0} {
		expect.Equalf(t, p.gap(since), want, "since %d: gap", since)
	}
	expect.Equalf(t, p.median(500), 300, "median (of 100, 300, 50 and 450)")
	expect.Equalf(t, p.after(900), 3, "effects since 900")
}

func TestOperatorsReport(t *testing.T) {
	output := t.TempDir() + "/operators"
	report := Reconciling{
		&Report{Rounds: 2},
		[]Gap{{"keda", byConclave, "kill -9", benchmark.NewSeries([]time.Duration{time.Second}), 100}},
		[]Return{{"kueue", byLease, 3000, 4}},
	}
	must.Succeed(t, report.write(output))
	text := must.ReadFile(t, output+".md")
	for _, want := range []string{
		"| KEDA | Conclave | 1 s / 1 s (100 ms) | - | - | - |", "| Kueue | Lease | 3 s | 4 |",
		"| kube-scheduler | that of the cluster |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report doesn't contain %q:\n%s", want, text)
		}
	}
}
