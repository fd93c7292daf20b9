package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/tracing"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/testing/fakecollector"
)

// record gives the agents of a group the journals of an election.
func (e *env) record(group, coordinator string, term uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for pod, agent := range e.agents {
		kind := "recognised"
		if pod == coordinator {
			kind = "tenure"
		}
		agent.SetJournal(&journal.Journal{Group: group, Agent: pod, Safety: "Majority", Steps: []journal.Step{
			{At: time.Now(), Input: "tick", Events: []journal.Event{{Kind: kind, Peer: coordinator, Term: term}}},
		}})
	}
}

// withTraces makes an operator export traces.
func withTraces(t *testing.T) func(*operator) {
	t.Helper()
	x, err := tracing.New(t.Context(), "v1", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return func(o *operator) { o.traces = x }
}

// namesOf returns the names of the spans of a trace, and its ID.
func namesOf(r *traces.ResourceSpans) (names []string, id string) {
	for _, s := range r.GetScopeSpans()[0].GetSpans() {
		names = append(names, s.GetName())
		id = fmt.Sprintf("%x", s.GetTraceId())
	}
	return sorted(names), id
}

// TestElectionsAreTraced: the leader exports each election once. That costs no writes. The next
// leader exports the latest one again, as the same trace.
func TestElectionsAreTraced(t *testing.T) {
	collector := fakecollector.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	e := newEnv(t)
	first := e.startOperator(withTraces(t))
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		e.pod(pod, "ledger")
	}
	e.record("ledger", "ledger-2", 7)
	e.createGroup("ledger", withService, pods...)
	e.awaitAdopted("ledger", 1, pods...)
	e.elect("ledger", "ledger-2", 7)
	e.awaitCoordinator("ledger", "ledger-2", 7)
	want := []string{"agent ledger-0", "agent ledger-1", "agent ledger-2", "election"}
	names, id := namesOf(collector.Await(t))
	if !slices.Equal(names, want) {
		t.Errorf("got spans %q, want %q", names, want)
	}

	e.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	e.awaitQuiet(first)
	before := len(first.written())
	e.record("ledger", "ledger-1", 8)
	e.elect("ledger", "ledger-1", 8)
	names, next := namesOf(collector.Await(t))
	if !slices.Equal(names, want) || next == id {
		t.Errorf("got spans %q in trace %s, want those of another election than %s", names, next, id)
	}
	e.awaitRole("ledger-2", "ledger", v1.RoleFollower)
	e.awaitQuiet(first)
	writes := []string{"PATCH endpointslices", "PATCH pods", "PATCH pods", "POST events", "PUT electiongroups/status"}
	if got := kinds(first.written()[before:]); !slices.Equal(got, writes) {
		t.Errorf("writes of an election that is traced:\ngot  %v\nwant %v", got, writes)
	}
	for pod, agent := range e.agents {
		if reads := agent.JournalReads(); reads != 2 {
			t.Errorf("got %d requests for the journal of %s, want 2", reads, pod)
		}
	}

	first.stop()
	e.startOperator(withTraces(t))
	if _, again := namesOf(collector.Await(t)); again != next {
		t.Errorf("got trace %s of the next leader, want %s", again, next)
	}
}

// TestOldAgentsAreMissingInTraces: an agent without a journal doesn't hide those of others.
func TestOldAgentsAreMissingInTraces(t *testing.T) {
	collector := fakecollector.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	e := newEnv(t)
	e.startOperator(withTraces(t))
	e.pod("ledger-0", "ledger")
	e.record("ledger", "ledger-0", 7)
	e.pod("ledger-1", "ledger")
	e.createGroup("ledger", nil, "ledger-0", "ledger-1")
	e.awaitAdopted("ledger", 1, "ledger-0", "ledger-1")
	e.elect("ledger", "ledger-0", 7)
	received := collector.Await(t)
	names, _ := namesOf(received)
	if want := []string{"agent ledger-0", "election"}; !slices.Equal(names, want) || !strings.Contains(fmt.Sprint(received), "ledger-1: its agent doesn't give its journal to the operator") {
		t.Errorf("got spans %q, want %q: %v", names, want, received)
	}
}

// TestNoJournalsWithoutTraces: an operator that exports no traces requests no journals.
func TestNoJournalsWithoutTraces(t *testing.T) {
	e := newEnv(t)
	o := e.startOperator()
	e.createSettledGroup(o)
	e.elect("ledger", "ledger-1", 8)
	e.awaitCoordinator("ledger", "ledger-1", 8)
	e.awaitQuiet(o)
	for pod, agent := range e.agents {
		if reads := agent.JournalReads(); reads != 0 {
			t.Errorf("got %d requests for the journal of %s, want none", reads, pod)
		}
	}
}
