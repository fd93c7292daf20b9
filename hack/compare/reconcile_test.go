package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestGrowthHasExponents(t *testing.T) {
	g := Growth{Report: &Report{}}
	for _, members := range memberCounts {
		m := MemberGrowth{Took: &benchmark.Series{Median: 7 * float64(members), Max: 9}}
		m.System, m.Members, m.CPU, m.Groups = "conclave-majority", members, 1, 1
		g.Members = append(g.Members, m)
	}
	for _, groups := range groupCounts {
		g.Idle = append(g.Idle, Idle{System: "conclave-majority", Groups: groups, Members: 3, CPU: 2, Resident: 5})
	}
	for _, groups := range operatorCounts {
		o := OperatorGrowth{Groups: groups, Empty: 50, Resident: 50 + float64(groups)}
		o.Restart.Connected, o.Elections.Lag.Median = 2, 20
		g.Operators = append(g.Operators, o)
	}
	output := t.TempDir() + "/growth"
	must.Succeed(t, writeReport(output, growthMarkdown, g, nil))
	text := must.ReadFile(t, output+".md")
	for _, want := range []string{
		"failover, median, ms: 21.0 (3), 70.0 (10), 210.0 (30), 420.0 (60), 700.0 (100). **1.00**",
		"CPU of all members, % of a core: 3.00 (3), 10.00 (10), 30.00 (30), 60.00 (60), 100.00 (100). **1.00**",
		"CPU of a member, % of a core: 2.00 (1), 2.00 (3), 2.00 (10), 2.00 (30), 2.00 (100). **0.00**",
		"memory beyond that without groups, MiB: 10.0 (10), 100.0 (100), 1000.0 (1000), 3000.0 (3000). **1.00**",
		"median, ms: 20.0 (10), 20.0 (100), 20.0 (1000), 20.0 (3000). **0.00**",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report doesn't contain %q:\n%s", want, text)
		}
	}
}
