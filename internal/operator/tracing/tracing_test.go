package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/operator/tracing"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/testing/fakecollector"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// newCollector starts a collector that exporters use.
func newCollector(t *testing.T) *fakecollector.Collector {
	t.Helper()
	c := fakecollector.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	return c
}

// exporter is a running exporter, and the lines of its log.
type exporter struct {
	*tracing.Exporter

	lines chan string
}

func start(t *testing.T, read tracing.ReadJournal) *exporter {
	t.Helper()
	x := newExporter(t, read)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- x.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await(t, stopped, "the end of the exporter"); err != nil {
			t.Error(err)
		}
	})
	return x
}

func newExporter(t *testing.T, read tracing.ReadJournal) *exporter {
	t.Helper()
	x := &exporter{lines: make(chan string, 100)}
	var err error
	if x.Exporter, err = tracing.New(t.Context(), "v1", funcr.New(func(_, line string) { x.lines <- line }, funcr.Options{})); err != nil {
		t.Fatal(err)
	}
	x.ReadWith(read)
	return x
}

func await[T any](t *testing.T, values <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-values:
	case <-time.After(testwait.Limit):
		t.Fatalf("timed out waiting for %s", what)
	}
	return value
}

// expect compares the metric with these counts.
func (x *exporter) expect(t *testing.T, exported, failed, dropped int) {
	t.Helper()
	const name = "conclave_operator_election_traces_total"
	want := fmt.Sprintf("# TYPE %[1]s counter\n%[1]s{result=%[2]q} %d\n%[1]s{result=%[4]q} %d\n%[1]s{result=%[6]q} %d\n", name, "dropped", dropped, "exported", exported, "failed", failed)
	want = "# HELP " + name + " Elections that were exported as traces, whose export failed, or that were dropped because too many were waiting.\n" + want
	if err := testutil.CollectAndCompare(x.Metrics(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

var (
	election = tracing.Election{Group: types.NamespacedName{Namespace: "bank", Name: "ledger"}, UID: "1c6f", Term: 8, Members: []string{"ledger-1", "ledger-0", "ledger-2"}}
	began    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// readRecorded returns the journals of two agents: ledger-1 was elected after ledger-2 fell silent,
// and needed the grant of ledger-0. That of ledger-2 is missing.
func readRecorded(_ context.Context, pod types.NamespacedName, group string) (*journal.Journal, error) {
	at := func(millis int) time.Time { return began.Add(time.Duration(millis) * time.Millisecond) }
	recognized := func(coordinator string, term uint64) []journal.Event {
		return []journal.Event{{Kind: "recognised", Peer: coordinator, Term: term}}
	}
	beat := journal.Message{Kind: "BEAT", From: "ledger-1", To: "ledger-0", Term: 8, Lamport: 20, Life: 1}
	grant := journal.Message{Kind: "GRANT", From: "ledger-0", To: "ledger-1", Term: 8, Lamport: 21, Life: 2}
	last := journal.Message{Kind: "BEAT", From: "ledger-1", To: "ledger-0", Term: 8, Lamport: 22, Life: 1}
	j := &journal.Journal{Group: group, Agent: pod.Name, Algorithm: "Bully", Safety: "Majority", Members: []journal.Member{{Name: "ledger-0"}, {Name: "ledger-1"}, {Name: "ledger-2"}}}
	switch pod.Name {
	case "ledger-1":
		j.Steps = []journal.Step{
			{At: at(-9000), Input: "tick", Events: recognized("ledger-2", 7)},
			{At: at(0), Input: "tick", Events: []journal.Event{{Kind: "crashed", Peer: "ledger-2", Term: 7}, {Kind: "elected", Peer: "ledger-1", Term: 8}}, Sent: []journal.Message{beat}},
			{At: at(4), Input: "receive", Message: &grant, Events: []journal.Event{{Kind: "tenure", Peer: "ledger-1", Term: 8}}, Sent: []journal.Message{last}},
		}
	case "ledger-0":
		j.Steps = []journal.Step{
			{At: at(-9000), Input: "tick", Events: recognized("ledger-2", 7)},
			{At: at(1), Input: "receive", Message: &beat, Sent: []journal.Message{grant}},
			{At: at(6), Input: "receive", Message: &last, Events: recognized("ledger-1", 8)},
		}
	default:
		return nil, errors.New("its agent isn't connected")
	}
	return j, nil
}

// TestElectionIsATrace: there is a span for the election and one for each agent, with its steps.
func TestElectionIsATrace(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=bank")
	x := start(t, readRecorded)
	x.Add(election)
	received := c.Await(t)
	resource := fmt.Sprint(received.GetResource())
	for _, want := range []string{`"conclave"`, `"bank"`, `"v1"`} {
		if !strings.Contains(resource, want) {
			t.Errorf("got resource %s, want %s in it", resource, want)
		}
	}
	spans := map[string]*traces.Span{}
	for _, s := range spansOf(received) {
		spans[s.GetName()] = s
	}
	root := spans["election"]
	if len(spans) != 3 || root == nil || len(root.GetParentSpanId()) > 0 {
		t.Fatalf("got spans %v, want one for the election and two for agents", spans)
	}
	for name, want := range map[string]struct {
		from, until, events int
		text                string
	}{
		"election":       {0, 6, 4, `conclave.missing`},
		"agent ledger-1": {0, 4, 2, "receive ledger-0 -> ledger-1 GRANT term 8"},
		"agent ledger-0": {1, 6, 2, "ledger-0 -> ledger-1 GRANT term 8"},
	} {
		s := spans[name]
		from, until := nanos(want.from), nanos(want.until)
		if s.GetStartTimeUnixNano() != from || s.GetEndTimeUnixNano() != until || len(s.GetEvents()) != want.events || !strings.Contains(fmt.Sprint(s), want.text) {
			t.Errorf("got span %v, want it from %d to %d with %d events and %q", s, from, until, want.events, want.text)
		}
		if parent := string(s.GetParentSpanId()); name != "election" && parent != string(root.GetSpanId()) || string(s.GetTraceId()) != string(root.GetTraceId()) {
			t.Errorf("got span %v, want it below %v", s, root)
		}
	}
	for _, want := range []string{`"conclave.term"`, "int_value:8", `"conclave.cause"`, `"silence"`, `"ledger-2: its agent isn't connected"`, "ledger-1 has the grants of a majority"} {
		if text := strings.ReplaceAll(fmt.Sprint(root), ":  ", ":"); !strings.Contains(strings.ReplaceAll(text, ": ", ":"), strings.ReplaceAll(want, ": ", ":")) {
			t.Errorf("got span %s, want %s in it", text, want)
		}
	}
}

// TestSameElectionSameTrace: another replica of the operator gives the spans the same IDs.
func TestSameElectionSameTrace(t *testing.T) {
	c := newCollector(t)
	identify := func(e tracing.Election) (ids string) {
		start(t, readRecorded).Add(e)
		for _, s := range spansOf(c.Await(t)) {
			ids += fmt.Sprintf("%s %x %x\n", s.GetName(), s.GetTraceId(), s.GetSpanId())
		}
		return ids
	}
	again := election
	again.UID = "another"
	first, second, other := identify(election), identify(election), identify(again)
	if first != second || len(first) < 3*32 {
		t.Errorf("got IDs\n%sand then\n%swant the same ones", first, second)
	}
	if strings.Contains(other, strings.Fields(first)[2]) {
		t.Errorf("got IDs\n%sof another group, want others than\n%s", other, first)
	}
}

// TestCollectorThatHangs: elections wait in the queue, further ones are dropped, and nothing blocks.
func TestCollectorThatHangs(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", fakecollector.StartHanging(t).URL)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
	x := newExporter(t, readRecorded)
	const queued, more = 1024, 3
	added := make(chan bool)
	go func() {
		for range queued + more {
			x.Add(election)
		}
		close(added)
	}()
	await(t, added, "Add to return")
	x.expect(t, 0, 0, more)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- x.Start(ctx) }()
	if line := await(t, x.lines, "a failure"); !strings.Contains(line, `"cannot export the trace of an election"`) || !strings.Contains(line, "bank/ledger") && !strings.Contains(line, `"ledger"`) {
		t.Errorf("got log line %s, want the failure and the group", line)
	}
	cancel()
	if err := await(t, ended, "the exporter to stop"); err != nil {
		t.Error(err)
	}
}

// TestElectionsThatCannotBeRead are counted, and the next one is exported.
func TestElectionsThatCannotBeRead(t *testing.T) {
	c := newCollector(t)
	read := func(ctx context.Context, pod types.NamespacedName, group string) (*journal.Journal, error) {
		j, err := readRecorded(ctx, pod, group)
		switch {
		case err != nil:
			return nil, err
		case group == "liar":
			j.Agent = "ledger-9"
		case group == "newer":
			j.Steps[0].Input = "surprise"
		}
		return j, nil
	}
	x := start(t, read)
	for group, want := range map[string]string{
		"liar":  `no journal has it; missing: ledger-1 (its journal is that of \"ledger-9\" in group \"liar\")`,
		"newer": "no journal has it; missing: ledger-1 (its agent is newer than",
	} {
		e := election
		e.Group.Name = group
		x.Add(e)
		if line := await(t, x.lines, "a failure"); !strings.Contains(line, want) {
			t.Errorf("%s: got log line %s, want %s in it", group, line, want)
		}
	}
	x.Add(election)
	c.Await(t)
	other := election
	other.Term = 9
	x.Add(other)
	if line := await(t, x.lines, "a failure"); !strings.Contains(line, "no journal has it") {
		t.Errorf("another term: got log line %s", line)
	}
	x.expect(t, 1, 3, 0)
}

func spansOf(r *traces.ResourceSpans) []*traces.Span { return r.GetScopeSpans()[0].GetSpans() }

func nanos(millis int) uint64 {
	return uint64(began.Add(time.Duration(millis) * time.Millisecond).UnixNano()) //nolint:gosec // after 1970
}
