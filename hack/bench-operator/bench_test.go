package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

// TestMain lets this program be what the benchmark starts once more.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	quieten()
	os.Exit(m.Run())
}

// TestOnAnAPIServer measures a little of all that takes no cluster.
func TestOnAnAPIServer(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must not skip tests: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
		}
		t.Skip("no API server: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
	}
	t.Chdir("../..")
	profile := filepath.Join(t.TempDir(), "profile")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := errors.Join(program.DependOnProgram(ctx, ".", "./cmd/manager"), program.DependOnFolder("config")); err != nil {
		t.Fatal(err)
	}
	report, err := measure(ctx, &options{
		parts: []string{leasePart, scalePart}, settle: 500 * time.Millisecond, leaseRounds: 1, leaseIdle: 5 * time.Second,
		groups: 3, members: 3, rate: 5, elections: 2 * time.Second, idle: time.Second, bystanders: 1, profile: profile,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if failed := report.Failures(); failed > 0 {
		t.Errorf("%d rounds failed: %v, %v", failed, report.Lease.Failures, report.Scale.Failures)
	}
	if l := report.Lease; l.Kills == nil || l.Writes == 0 {
		t.Errorf("of the Lease: %+v", l)
	}
	if found, err := os.Stat(profile); err != nil || found.Size() == 0 {
		t.Errorf("there is no profile of the API server: %v", err)
	}
	s := report.Scale
	if s.Empty == 0 || s.Resident == 0 || s.End == 0 || s.Peak == 0 || s.Start == 0 || s.StreamBytes == 0 {
		t.Errorf("of the manager: %+v", s)
	}
	if e := s.Elections; e.Count == 0 || e.Lag == nil || e.Lag.Rounds != e.Count || e.Requests.of(writes) < 1 || e.CPU["kube-apiserver"] == 0 || e.Cost["kube-apiserver"] == 0 {
		t.Errorf("of elections: %+v", e)
	}
	if s.Restart.Heard == 0 || s.Restart.Requests.of("watches") == 0 {
		t.Errorf("of a restart: %+v", s.Restart)
	}
	var printed bytes.Buffer
	if err := report.Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the next leads", "report -> status seen", "3 groups of 3", "writes-pods", "status lag, p99"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("the report says nothing about %q:\n%s", want, printed.String())
		}
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for flags, part := range map[string]string{
		"-o yaml":                        "choose table or json",
		"--part everything":              "choose from lease, scale, cluster",
		"--part scale --groups 0":        "must be 1 or more",
		"--part scale --groups 20000":    "addresses for 50000",
		"--part scale --rate 0":          "must be above 0",
		"--part lease --lease-rounds -1": "--lease-rounds",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(flags))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, and not %q", flags, err, part)
		}
	}
}

func TestRequests(t *testing.T) {
	before := Requests{"reads-pods": 3, "writes-pods": 1}
	more := Requests{"reads-pods": 3, "writes-pods": 11, "writes-events": 5}.since(before)
	if len(more) != 2 || more.of(writes) != 15 || more.of(reads) != 0 {
		t.Errorf("since then: %v", more)
	}
	if text := more.per(4).String(); text != "writes-pods 2.5, writes-events 1.25" {
		t.Errorf("for each of 4: %s", text)
	}
	if text := (Requests{}).String(); text != "none" {
		t.Errorf("of nothing: %s", text)
	}
}

// TestKinds: the first that fits counts, so what is special comes first, and the
// last takes all the rest.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range kinds {
		if seen[k.name] {
			t.Errorf("there are two kinds %s", k.name)
		}
		seen[k.name] = true
		isWrite := strings.Contains(k.name, writes)
		if isWrite != slices.Contains(k.verbs, "patch") || !isWrite && k.name != "watches" && !slices.Contains(k.verbs, "*") {
			t.Errorf("%s has the verbs %v", k.name, k.verbs)
		}
	}
	if last := kinds[len(kinds)-1]; last.name != reads+"-others" || last.resources[0] != "*" || last.groups[0] != "*" {
		t.Errorf("the last kind is %+v", last)
	}
}

func TestEachAgentHasAnAddressOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for n := range maxMembers {
		seen[address(n)] = true
	}
	if len(seen) != maxMembers || !seen["127.77.0.1"] || !seen["127.77.199.250"] {
		t.Errorf("%d agents have %d addresses", maxMembers, len(seen))
	}
}

func TestInjectedPodsHaveTheAgent(t *testing.T) {
	pod, err := injected(podOf("bench-0", "ledger-0-1", 1, "ledger-0"), "CA")
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Name != v1.AgentContainer {
		t.Errorf("its init containers are %+v", pod.Spec.InitContainers)
	}
}

// groupOf is a group as the API server shows it.
func groupOf(coordinator string, term int64, ready int32, connected metav1.ConditionStatus) *v1.ElectionGroup {
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bench-0", Name: sample}}
	g.Spec.Members = []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}}
	g.Status.Term, g.Status.ReadyMembers = term, &ready
	g.Status.Conditions = []metav1.Condition{{Type: string(v1.AgentsConnected), Status: connected}}
	if coordinator != "" {
		g.Status.Coordinator = &v1.Coordinator{Pod: coordinator, Term: term}
	}
	return g
}

func TestTheAudienceSeesElections(t *testing.T) {
	a := &audience{complete: map[types.NamespacedName]bool{}, terms: map[types.NamespacedName]int64{}, awaited: map[types.NamespacedName]awaited{}}
	key := types.NamespacedName{Namespace: "bench-0", Name: sample}
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
		a.see(step.group, begun)
		if count, err := a.completed(); count != step.complete || err != nil {
			t.Errorf("%+v: %d groups are complete (%v)", step.group.Status, count, err)
		}
	}
	if !a.await(key, awaited{coordinator: "b", term: 2}) || a.await(key, awaited{coordinator: "a", term: 3}) {
		t.Error("one election is awaited at a time")
	}
	a.begin(key, begun)
	a.see(groupOf("", 2, 2, metav1.ConditionTrue), begun.Add(time.Millisecond))
	if count, _ := a.outstanding(); count != 1 {
		t.Error("that nobody leads was taken for the election")
	}
	a.see(groupOf("b", 2, 2, metav1.ConditionTrue), begun.Add(5*time.Millisecond))
	a.see(groupOf("b", 2, 2, metav1.ConditionTrue), begun.Add(9*time.Millisecond))
	if lags, missed := a.result(); len(lags) != 1 || lags[0] != 5*time.Millisecond || len(missed) != 0 {
		t.Errorf("it took %v; missed: %v", lags, missed)
	}
	a.await(key, awaited{coordinator: "a", term: 3})
	if _, missed := a.result(); len(missed) != 1 || !strings.Contains(missed[0], "a leads in term 3") {
		t.Errorf("missed: %v", missed)
	}
}

// TestARoundIsFollowed: one is elected, and then each of the three is seen.
func TestARoundIsFollowed(t *testing.T) {
	s := newSightings()
	moment := time.Now()
	before := v1.Coordinator{Pod: "b", Term: 1}
	show := func(object any, after time.Duration) {
		event := watch.Event{Type: watch.Modified}
		switch o := object.(type) {
		case *v1.ElectionGroup:
			event.Object = o
		case *corev1.Pod:
			event.Object = o
		case *discoveryv1.EndpointSlice:
			event.Object = o
		}
		s.see(event, moment.Add(after))
	}
	pod := func(name, role string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.RoleLabel(sample): role}}}
		p.Status.PodIP = "ip-" + name
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return p
	}
	slice := func(to string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: serviceName}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{to}}},
		}
	}
	old, next := groupOf("b", 1, 2, metav1.ConditionTrue), groupOf("a", 2, 2, metav1.ConditionTrue)
	next.Status.Coordinator.ElectedAt = metav1.NewMicroTime(moment.Add(10 * time.Millisecond))
	show(pod("a", v1.RoleFollower), 0)
	show(old, 0)
	show(slice("ip-b"), 0)
	show(next, 12*time.Millisecond)
	show(next, 13*time.Millisecond)
	show(slice("ip-a"), 14*time.Millisecond)
	show(pod("a", v1.RoleCoordinator), 17*time.Millisecond)
	show(pod("a", v1.RoleCoordinator), 19*time.Millisecond)
	b, err := (&site{seen: s}).follow(t.Context(), before, moment)
	want := blow{elected: 10 * time.Millisecond, status: 2 * time.Millisecond, label: 7 * time.Millisecond, endpoint: 4 * time.Millisecond}
	for _, d := range []*time.Duration{&b.elected, &b.status, &b.label, &b.endpoint} {
		*d = d.Round(100 * time.Microsecond) // A MicroTime drops what is less.
	}
	if err != nil || b != want {
		t.Errorf("the round was %+v (%v), not %+v", b, err, want)
	}
	if s.well() {
		t.Error("with half a table, it's well")
	}
	next.Status.Processes = []v1.Process{{Pod: "a", Status: v1.ProcessCoordinator}, {Pod: "b", Status: v1.ProcessNormal}}
	show(next, 0)
	show(pod("b", v1.RoleFollower), 0)
	if !s.well() {
		t.Errorf("it isn't well: %s", s.describe())
	}
	show(slice("ip-b"), 0)
	if s.well() {
		t.Error("while the Service leads elsewhere, it's well")
	}
}

// TestEverythingIsPrinted, also of what couldn't be measured.
func TestEverythingIsPrinted(t *testing.T) {
	blows := &Blows{Elected: benchmark.NewSeries([]time.Duration{time.Millisecond}), Status: benchmark.NewSeries([]time.Duration{2 * time.Millisecond})}
	blows.Endpoint = blows.Status
	report := &Report{Cluster: &Cluster{
		Nodes: 3, Kills: blows, Deletions: &Blows{}, HandOvers: &Blows{}, Idle: &Idle{Requests: Requests{"writes-pods": 2}}, Failures: []string{"kill 2: late"},
	}}
	report.Cluster.judge()
	var printed bytes.Buffer
	if err := report.Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kill -9 of the agent -> the next is elected", "writes-pods 2", "FAILED: kill 2: late",
		"kill, elected -> status, p99: 2 ms, at most 100: reached", "writes while idle, but for the Lease: 2 requests, at most 0: NOT REACHED",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("the report says nothing about %q:\n%s", want, printed.String())
		}
	}
	if strings.Contains(printed.String(), "by force") {
		t.Errorf("it has figures of what wasn't measured:\n%s", printed.String())
	}
	if text, err := json.Marshal(report); err != nil || !bytes.Contains(text, []byte(`"medianMillis":2`)) {
		t.Errorf("as JSON: %s (%v)", text, err)
	}
	if report.Failures() != 1 {
		t.Errorf("%d failures", report.Failures())
	}
}
