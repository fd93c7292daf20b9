package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// typed returns a client that speaks the Go types, and is as strict as kubectl.
func typed(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return connectWith(t, client.Options{Scheme: scheme})
}

// create makes a group of n members, a-0 to a-(n-1), for as long as the test lasts.
func create(t *testing.T, c client.Client, name string, n int) *v1.ElectionGroup {
	t.Helper()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for i := range n {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint("a-", i), Priority: int32(i)})
	}
	g.Spec.Members[0].Priority = int32(n)
	if err := c.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), g); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestDefaultsAreFilledIn(t *testing.T) {
	g := create(t, typed(t), "defaults", 1)
	got, err := json.Marshal(g.Spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"algorithm":"StatusTable","members":[{"pod":"a-0","priority":1}],` +
		`"safety":{"mode":"Majority","leaseMillis":500},"preemption":{"policy":"WhenStable","stableSeconds":5},` +
		`"timing":{"heartbeatMillis":100,"drainMillis":5000},"application":{"session":"Optional"}}`
	if string(got) != want {
		t.Errorf("the spec became\n%s\nwant\n%s", got, want)
	}
}

// TestStatusIsForTheOperatorAlone: who may write the group can't write its status
// with it, and the other way round.
func TestStatusIsForTheOperatorAlone(t *testing.T) {
	c := typed(t)
	g := create(t, c, "status", 1)
	g.Status.Term = 7
	g.Spec.Algorithm = v1.Bully
	if err := c.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if g.Status.Term != 0 || g.Spec.Algorithm != v1.Bully || g.Generation != 2 {
		t.Errorf("an update of the group made term %d, %s, generation %d", g.Status.Term, g.Spec.Algorithm, g.Generation)
	}
	g.Status.Term = 7
	g.Spec.Algorithm = v1.RingSkip
	if err := c.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if g.Status.Term != 7 || g.Spec.Algorithm != v1.Bully || g.Generation != 2 {
		t.Errorf("an update of the status made term %d, %s, generation %d", g.Status.Term, g.Spec.Algorithm, g.Generation)
	}
}

func TestColumns(t *testing.T) {
	c := typed(t)
	g := create(t, c, "columns", 3)
	g.Status = status(g, 7)
	g.Status.ReadyMembers = new(int32(2))
	if err := c.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	narrow, wide := columns(t, "columns")
	if want := "NAME=columns ALGORITHM=StatusTable COORDINATOR=a-0 TERM=7 READY=2 MEMBERS=3 AGE=*"; narrow != want {
		t.Errorf("kubectl get shows\n%s\nwant\n%s", narrow, want)
	}
	if want := "ELECTED=* SAFETY=Majority AGREED=True LIST=2 STATE=Adopting MESSAGE=all is well"; wide != want {
		t.Errorf("with -o wide also\n%s\nwant\n%s", wide, want)
	}
}

// columns are what kubectl get shows of a group, and what it adds with -o wide.
// Times are shown as *.
func columns(t *testing.T, name string) (narrow, wide string) {
	t.Helper()
	config := apiServer.Config(t)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		strings.TrimSuffix(config.Host, "/")+"/apis/conclave.dev/v1/namespaces/default/electiongroups/"+name, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := httpClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(answer.Body).Decode(&table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%d rows, %v", len(table.Rows), err)
	}
	var shown [2][]string
	for i, column := range table.ColumnDefinitions {
		cell := table.Rows[0].Cells[i]
		if column.Type == "date" && cell != nil {
			cell = "*"
		}
		level := min(column.Priority, 1)
		shown[level] = append(shown[level], fmt.Sprintf("%s=%v", strings.ToUpper(column.Name), cell))
	}
	return strings.Join(shown[0], " "), strings.Join(shown[1], " ")
}

// status is a full one, with everything that it can have.
func status(g *v1.ElectionGroup, term int64) v1.ElectionGroupStatus {
	members := g.Spec.Members
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	s := v1.ElectionGroupStatus{
		ObservedGeneration: g.Generation, Term: term,
		Coordinator: &v1.Coordinator{
			Pod: members[0].Pod, Priority: members[0].Priority, Term: term, ElectedAt: metav1.NewMicroTime(now.Time),
		},
		Members: new(int32(len(members))), ReadyMembers: new(int32(len(members))),
		MemberList: &v1.MemberList{
			Version: 2, State: v1.ListAdopting, Members: members,
			Previous: &v1.PreviousList{Version: 1, Members: members}, Floor: new(int64(1)),
		},
	}
	for _, m := range members {
		s.Processes = append(s.Processes, v1.Process{
			Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Reason: v1.ProcessUnreachable, Since: &now,
		})
	}
	for condition, reason := range map[v1.ConditionType]v1.Reason{
		v1.Ready: v1.ReasonHealthy, v1.CoordinatorElected: v1.ReasonElected, v1.Agreed: v1.ReasonAgreed,
		v1.AgentsConnected: v1.ReasonConnected,
	} {
		s.Conditions = append(s.Conditions, metav1.Condition{
			Type: string(condition), Status: metav1.ConditionTrue, Reason: string(reason), Message: "all is well",
			LastTransitionTime: now,
		})
	}
	return s
}

// TestLargestGroupFits: a group of a thousand pods whose names are as long as
// those of a workload's pods can be, with a full status in which all rows have
// something to say. Its rules stay within the budgets of the API server, and it
// fits into etcd.
func TestLargestGroupFits(t *testing.T) {
	c := typed(t)
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "largest"}}
	for i := range int32(v1.MaxMembers) {
		pod := fmt.Sprintf("%s-%03d", strings.Repeat("p", 59), i)
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: pod, Priority: v1.MaxPriority - i})
	}
	if err := c.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	g.Status = status(g, 7)
	for i := range g.Status.Processes {
		g.Status.Processes[i].Message = strings.Repeat("m", 256)
		g.Status.MemberList.Departed = append(g.Status.MemberList.Departed, g.Status.Processes[i].Pod)
	}
	if err := c.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	g.Status.MemberList.State = v1.ListSettled
	if err := c.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	list := g.Status.MemberList
	g.Status.MemberList = &v1.MemberList{
		Version: 3, State: v1.ListAdopting, Members: list.Members, Floor: list.Floor,
		Previous: &v1.PreviousList{Version: list.Version, Members: list.Members},
	}
	if err := c.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// TestSamplesApply to a cluster as they are, all at once.
func TestSamplesApply(t *testing.T) {
	c := connect(t)
	shown := map[v1.Algorithm]bool{}
	files, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	for _, file := range files {
		for i, object := range documents(t, file) {
			object.SetNamespace("default")
			if err := c.Create(t.Context(), object); err != nil {
				t.Errorf("%s, document %d: %v", file, i+1, complaints(t, err))
				continue
			}
			if object.GetKind() == "ElectionGroup" {
				var g v1.ElectionGroup
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &g); err != nil {
					t.Fatal(err)
				}
				shown[g.Spec.Algorithm] = true
			}
			if err := c.Delete(t.Context(), object); err != nil {
				t.Error(err)
			}
		}
	}
	if len(shown) != len(catalog.Names()) {
		t.Errorf("there are samples of %v, and not of all algorithms", shown)
	}
}

// documents are the objects in a file.
func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	reader := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data))
	for {
		object := &unstructured.Unstructured{}
		if err := reader.Decode(object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, object)
	}
}

// TestNamesAgree: the API server knows the names and bounds that the agents know.
func TestNamesAgree(t *testing.T) {
	var names []string
	for _, name := range schema(t).Properties["spec"].Properties["algorithm"].Enum {
		names = append(names, strings.Trim(string(name.Raw), `"`))
	}
	if want := catalog.Names(); !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(want))) {
		t.Errorf("the schema knows the algorithms %v, and agents %v", names, want)
	}
	if v1.MaxPriority != election.MaxPriority {
		t.Errorf("the highest priority is %d, and to agents %d", v1.MaxPriority, election.MaxPriority)
	}
	key := v1.RoleLabel(strings.Repeat("a", v1.MaxNameLength))
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		t.Errorf("%s is no label: %v", key, wrong)
	}
	if _, err := os.Stat("../../docs/adr/0008-what-the-status-remembers.md"); err != nil {
		t.Error("the comment on MemberList names a page that isn't there:", err)
	}
}

// TestSelectorsMeanTheSame in the terms of apimachinery.
func TestSelectorsMeanTheSame(t *testing.T) {
	selector := &v1.PodSelector{
		MatchLabels: map[string]v1.LabelValue{"app": "ledger", "tier": ""},
		MatchExpressions: []v1.LabelRequirement{
			{Key: "zone", Operator: v1.NotIn, Values: []v1.LabelValue{"moon", "mars"}},
			{Key: "canary", Operator: v1.DoesNotExist},
		},
	}
	ours, err := json.Marshal(selector)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := json.Marshal(selector.LabelSelector())
	if err != nil || !bytes.Equal(ours, theirs) {
		t.Errorf("%s became %s (%v)", ours, theirs, err)
	}
}
