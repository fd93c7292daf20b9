package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

func TestMain(m *testing.M) {
	disableLogs()
	os.Exit(m.Run())
}

// The test runs short measurements.
func TestAllResultsAreReported(t *testing.T) {
	need.Complete(t)
	need.APIServer(t)
	t.Chdir("../..")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	must.Succeed(t, errors.Join(program.DependOnProgram(ctx, ".", "./cmd/manager"), program.DependOnFolder("config")))
	s, err := measure(ctx, &options{
		settle: 500 * time.Millisecond, groups: 3, members: 3, rate: 5, elections: 2 * time.Second, idle: time.Second,
	}, io.Discard)
	must.Succeed(t, err)
	expect.Lenf(t, s.Missed, 0, "elections that weren't shown")
	if s.Empty == 0 || s.Resident == 0 || s.Peak == 0 || s.Start == 0 {
		t.Errorf("got scale results %+v, want positive values", s)
	}
	if e := s.Elections; e.Count == 0 || e.Lag == nil || e.Lag.Rounds != e.Count || e.Requests.withPrefix(writes) < 1 ||
		e.Cost["kube-apiserver"] == 0 {
		t.Errorf("got election results %+v, want positive values", e)
	}
	if s.Restart.Connected == 0 || s.Restart.Requests.withPrefix("watches") == 0 {
		t.Errorf("got restart results %+v, want positive values", s.Restart)
	}
	var printed bytes.Buffer
	must.Succeed(t, s.Print(&printed))
	for _, want := range []string{"report until status visible", "3 groups of 3", "writes-pods", "status lag, p99"} {
		expect.Containsf(t, printed.String(), want, "report")
	}
}

func TestInvalidFlagsAreRejected(t *testing.T) {
	for flags, part := range map[string]string{
		"--groups 0":     "must be 1 or more",
		"--groups 20000": "at most 50000 members",
		"--rate 0":       "must be above 0",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(flags))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		expect.ErrorContainsf(t, root.ExecuteContext(t.Context()), part, "%s", flags)
	}
}

func TestDifferencesAndSums(t *testing.T) {
	before := Quantities{"reads-pods": 3, "writes-pods": 1}
	difference := Quantities{"reads-pods": 3, "writes-pods": 11, "writes-events": 5}.minus(before)
	if len(difference) != 2 || difference.withPrefix(writes) != 15 || difference.withPrefix(reads) != 0 {
		t.Errorf("got difference %v, want 15 writes and 0 reads", difference)
	}
	expect.Equalf(t, difference.per(4).String(), "writes-pods 2.5, writes-events 1.25", "per election")
	expect.Equalf(t, (Quantities{}).String(), "none", "for no requests")
}

// A request belongs to the first kind that matches, so specific kinds come first and the last kind matches everything.
func TestLastRequestKindMatchesAllRequests(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range kinds {
		if seen[k.name] {
			t.Errorf("got two kinds with the name %s", k.name)
		}
		seen[k.name] = true
		isWrite := strings.Contains(k.name, writes)
		if isWrite != slices.Contains(k.verbs, "patch") || !isWrite && k.name != "watches" && !slices.Contains(k.verbs, "*") {
			t.Errorf("kind %s has the wrong verbs: %v", k.name, k.verbs)
		}
	}
	if last := kinds[len(kinds)-1]; last.name != reads+"-others" || last.resources[0] != "*" || last.groups[0] != "*" {
		t.Errorf("got last kind %+v, want one that matches everything", last)
	}
}

func TestAddressesOfAgentsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for n := range maxMembers {
		seen[address(n)] = true
	}
	if len(seen) != maxMembers || !seen["127.77.0.1"] || !seen["127.77.199.250"] {
		t.Errorf("got %d addresses for %d agents", len(seen), maxMembers)
	}
}

func TestInjectedPodHasAgentContainer(t *testing.T) {
	pod, err := injected(podOf("bench-0", "ledger-0-1", 1, "ledger-0"), "CA")
	must.Succeed(t, err)
	if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Name != v1.AgentContainer {
		t.Errorf("got init containers %+v, want the agent", pod.Spec.InitContainers)
	}
}

// groupOf returns a group with a status.
func groupOf(coordinator string, term int64, ready int32, connected metav1.ConditionStatus) *v1.ElectionGroup {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bench-0", Name: "ledger"}}
	g.Spec.Members = []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}}
	g.Status.Term, g.Status.ReadyMembers = term, &ready
	g.Status.Conditions = []metav1.Condition{{Type: string(v1.ConditionAgentsConnected), Status: connected}}
	if coordinator != "" {
		g.Status.Coordinator = &v1.Coordinator{Pod: coordinator, Term: term}
	}
	return g
}

func TestStatusObserverMeasuresElections(t *testing.T) {
	o := newStatusObserver()
	key := types.NamespacedName{Namespace: "bench-0", Name: "ledger"}
	begun := time.Now()
	for _, step := range []struct {
		group    *v1.ElectionGroup
		complete int
	}{
		{groupOf("", 1, 2, metav1.ConditionTrue), 0},
		{groupOf("a", 1, 1, metav1.ConditionTrue), 0},
		{groupOf("a", 1, 2, metav1.ConditionFalse), 0},
		{groupOf("a", 1, 2, metav1.ConditionTrue), 1},
	} {
		o.record(step.group, begun)
		if count, err := o.completeGroups(); count != step.complete || err != nil {
			t.Errorf("status %+v: got %d complete groups and error %v, want %d", step.group.Status, count, err, step.complete)
		}
	}
	if !o.expect(key, election{coordinator: "b", term: 2}) || o.expect(key, election{coordinator: "a", term: 3}) {
		t.Error("want one pending election at a time")
	}
	o.begin(key, begun)
	o.record(groupOf("", 2, 2, metav1.ConditionTrue), begun.Add(time.Millisecond))
	if count, _ := o.pendingElections(); count != 1 {
		t.Error("a status without coordinator ended the election")
	}
	o.record(groupOf("b", 2, 2, metav1.ConditionTrue), begun.Add(5*time.Millisecond))
	o.record(groupOf("b", 2, 2, metav1.ConditionTrue), begun.Add(9*time.Millisecond))
	if lags, missed := o.result(); len(lags) != 1 || lags[0] != 5*time.Millisecond || len(missed) != 0 {
		t.Errorf("got lags %v and missed %v, want one lag of 5 ms", lags, missed)
	}
	o.expect(key, election{coordinator: "a", term: 3})
	if _, missed := o.result(); len(missed) != 1 || !strings.Contains(missed[0], "a leads in term 3") {
		t.Errorf("got missed elections %v, want term 3", missed)
	}
}
