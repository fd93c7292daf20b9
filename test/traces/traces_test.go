package traces

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/tracing"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// collector is the OTLP receiver of the OpenTelemetry collector. It has the traces that arrived.
type collector struct {
	consumertest.TracesSink

	address  string
	receiver receiver.Traces
}

func (c *collector) start(t *testing.T) {
	t.Helper()
	factory := otlpreceiver.NewFactory()
	config, ok := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	if !ok {
		t.Fatal("got another configuration, want that of the OTLP receiver")
	}
	config.Protocols.HTTP = configoptional.None[otlpreceiver.HTTPConfig]()
	config.Protocols.GRPC = configoptional.Some(configgrpc.ServerConfig{NetAddr: confignet.AddrConfig{Endpoint: c.address, Transport: confignet.TransportTypeTCP}})
	var err error
	if c.receiver, err = factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), config, c); err != nil {
		t.Fatal(err)
	}
	if err := c.receiver.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
}

func (c *collector) stop(t *testing.T) {
	t.Helper()
	if err := c.receiver.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// startCollector starts a collector, and makes exporters use it.
func startCollector(t *testing.T) *collector {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{address: listener.Addr().String()}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+c.address)
	return c
}

// startAgents starts four real agents and returns them when they have a coordinator.
func startAgents(t *testing.T) (cluster *agentcluster.Cluster, coordinator string) {
	t.Helper()
	folder := t.TempDir()
	binary := filepath.Join(folder, "conclave-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, "./cmd/agent")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the agent: %v: %s", err, output)
	}
	cluster, err := agentcluster.New(t.Context(), agentcluster.Options{Binary: binary, Folder: folder, Agents: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Limit)
	defer cancel()
	if err := cluster.AwaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	if coordinator, err = cluster.AwaitCoordinator(ctx); err != nil {
		t.Fatal(err)
	}
	return cluster, coordinator
}

// export starts an exporter, as each replica of the operator has one.
func export(t *testing.T, cluster *agentcluster.Cluster) *tracing.Exporter {
	t.Helper()
	if enabled, err := tracing.Enabled(os.Getenv); !enabled || err != nil {
		t.Fatalf("got %t, %v, want traces", enabled, err)
	}
	x, err := tracing.New(t.Context(), "v1", testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	x.ReadWith(func(ctx context.Context, pod types.NamespacedName, _ string) (*journal.Journal, error) {
		j, err := cluster.Journal(ctx, pod.Name)
		return &j, err
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- x.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return x
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testwait.Limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// TestElectionOfRealAgents: after a crash, the collector has one trace with a span for each survivor, another replica
// of the operator gives it the same IDs, and elections are exported again when the collector is back.
func TestElectionOfRealAgents(t *testing.T) {
	c := startCollector(t)
	cluster, former := startAgents(t)
	if _, err := cluster.Agent(former).Kill(); err != nil {
		t.Fatal(err)
	}
	survivors := slices.DeleteFunc(slices.Clone(cluster.Names()), func(name string) bool { return name == former })
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Limit)
	defer cancel()
	coordinator, err := cluster.AwaitCoordinator(ctx, survivors...)
	if err != nil {
		t.Fatal(err)
	}
	leader, err := cluster.Leader(ctx, coordinator)
	if err != nil {
		t.Fatal(err)
	}
	election := tracing.Election{Group: types.NamespacedName{Namespace: "bank", Name: "ledger"}, UID: "1c6f", Term: leader.Term, Members: cluster.Names()}

	first := export(t, cluster)
	first.Add(election)
	await(t, "the trace has arrived", func() bool { return c.SpanCount() > 0 })
	spans := check(t, c.AllTraces()[0], survivors, coordinator, former)

	c.Reset()
	export(t, cluster).Add(election)
	await(t, "the trace has arrived again", func() bool { return c.SpanCount() > 0 })
	if again := check(t, c.AllTraces()[0], survivors, coordinator, former); !slices.Equal(again, spans) {
		t.Errorf("got spans %q from another replica, want the same: %q", again, spans)
	}

	c.Reset()
	c.stop(t)
	first.Add(election)
	await(t, "the failure is counted", func() bool { return count(t, first, "failed") == 1 })
	c.start(t)
	t.Cleanup(func() { c.stop(t) })
	await(t, "an election is exported again", func() bool {
		first.Add(election)
		return c.SpanCount() > 0
	})
}

// count returns how many elections of an exporter had a result.
func count(t *testing.T, x *tracing.Exporter, result string) int {
	t.Helper()
	text, err := testutil.CollectAndFormat(x.Metrics(), expfmt.TypeTextPlain, "conclave_operator_election_traces_total")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), fmt.Sprintf("{result=%q} ", result))
	n := 0
	if _, err := fmt.Sscan(after, &n); !found || err != nil {
		t.Fatalf("got no count of %s: %s", result, text)
	}
	return n
}

// check checks a trace, and returns its spans.
func check(t *testing.T, traces ptrace.Traces, survivors []string, coordinator, former string) []string {
	t.Helper()
	spans := traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	if service, _ := traces.ResourceSpans().At(0).Resource().Attributes().Get("service.name"); service.AsString() != "conclave" {
		t.Errorf("got service %q, want conclave", service.AsString())
	}
	var found, agents []string
	root := ptrace.NewSpan()
	for _, s := range spans.All() {
		found = append(found, fmt.Sprint(s.Name(), s.TraceID(), s.SpanID()))
		if s.ParentSpanID().IsEmpty() {
			root = s
		}
	}
	for name, want := range map[string]string{
		"conclave.coordinator": coordinator, "conclave.former_coordinator": former, "conclave.cause": "crash", "k8s.namespace.name": "bank", "conclave.group.name": "ledger",
	} {
		if got, _ := root.Attributes().Get(name); got.AsString() != want {
			t.Errorf("got %s %q, want %q", name, got.AsString(), want)
		}
	}
	for _, s := range spans.All() {
		if s.SpanID() == root.SpanID() {
			continue
		}
		if s.ParentSpanID() != root.SpanID() || s.TraceID() != root.TraceID() {
			t.Errorf("got span %s outside the trace", s.Name())
		}
		agent, _ := s.Attributes().Get("k8s.pod.name")
		agents = append(agents, agent.AsString())
		checkSteps(t, root, s)
	}
	slices.Sort(agents)
	if !slices.Equal(agents, survivors) {
		t.Errorf("got spans of the agents %q, want %q", agents, survivors)
	}
	if milestones := root.Events(); milestones.Len() < 3 || !strings.Contains(milestones.At(0).Name(), "finds that the process of "+former+" has ended") {
		t.Errorf("got %d milestones, want at first that an agent notices the crash", milestones.Len())
	}
	return found
}

// checkSteps checks that the events of an agent's span are in order and within both spans.
func checkSteps(t *testing.T, root, s ptrace.Span) {
	t.Helper()
	if s.Events().Len() == 0 || s.StartTimestamp() < root.StartTimestamp() || s.EndTimestamp() > root.EndTimestamp() {
		t.Errorf("got %d events in span %s, want some within the election", s.Events().Len(), s.Name())
	}
	last := s.StartTimestamp()
	for _, event := range s.Events().All() {
		if event.Timestamp() < last || event.Timestamp() > s.EndTimestamp() {
			t.Errorf("got event %s of %s at %s, want it after %s", event.Name(), s.Name(), event.Timestamp(), last)
		}
		last = event.Timestamp()
	}
}
