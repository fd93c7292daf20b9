package api

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
	"regexp"
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
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// typedClient returns a client for the Go types that is as strict as kubectl.
func typedClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, v1.AddToScheme(scheme))
	return connectWith(t, client.Options{Scheme: scheme})
}

// createGroup creates a group of n members, a-0 to a-(n-1), and deletes it after the test.
func createGroup(t *testing.T, c client.Client, name string, n int) *v1.ElectionGroup {
	t.Helper()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for i := range n {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint("a-", i), Priority: int32(i)})
	}
	g.Spec.Members[0].Priority = int32(n)
	must.Succeed(t, c.Create(t.Context(), g))
	t.Cleanup(func() {
		expect.Succeed(t, c.Delete(context.WithoutCancel(t.Context()), g))
	})
	return g
}

func TestDefaults(t *testing.T) {
	g := createGroup(t, typedClient(t), "defaults", 1)
	got, err := json.Marshal(g.Spec)
	must.Succeed(t, err)
	const want = `{"algorithm":"StatusTable","members":[{"pod":"a-0","priority":1}],` +
		`"safety":{"mode":"Majority","leaseMillis":500},"preemption":{"policy":"WhenStable","stableMillis":5000},` +
		`"timing":{"heartbeatMillis":100,"drainMillis":5000},"application":{"session":"Optional"}}`
	expect.Equalf(t, string(got), want, "spec")
}

// TestStatusIsASubresource tests that an update of the group does not change the status, and vice versa.
func TestStatusIsASubresource(t *testing.T) {
	c := typedClient(t)
	g := createGroup(t, c, "status", 1)
	g.Status.Term = 7
	g.Spec.Algorithm = v1.Bully
	must.Succeed(t, c.Update(t.Context(), g))
	if g.Status.Term != 0 || g.Spec.Algorithm != v1.Bully || g.Generation != 2 {
		t.Errorf("update of the group: got term %d, algorithm %s, generation %d", g.Status.Term,
			g.Spec.Algorithm, g.Generation)
	}
	g.Status.Term = 7
	g.Spec.Algorithm = v1.RingSkip
	must.Succeed(t, c.Status().Update(t.Context(), g))
	if g.Status.Term != 7 || g.Spec.Algorithm != v1.Bully || g.Generation != 2 {
		t.Errorf("update of the status: got term %d, algorithm %s, generation %d", g.Status.Term,
			g.Spec.Algorithm, g.Generation)
	}
}

func TestColumns(t *testing.T) {
	c := typedClient(t)
	g := createGroup(t, c, "columns", 3)
	g.Status = fullStatus(g, 7)
	g.Status.ReadyMembers = new(int32(2))
	must.Succeed(t, c.Status().Update(t.Context(), g))
	narrow, wide := columns(t, "columns")
	expect.Equalf(t, narrow, "NAME=columns COORDINATOR=a-0 READY=True REASON=Healthy UP=2 AGE=*", "kubectl get")
	if want := "MEMBERS=3 TERM=7 ELECTED=* ALGORITHM=StatusTable SAFETY=Majority AVAILABLE=True LIST=2 STATE=Adopting " +
		"MESSAGE=The group is healthy"; wide != want {
		t.Errorf("kubectl get -o wide: got in addition\n%s\nwant\n%s", wide, want)
	}
}

// columns returns the columns that kubectl get shows for a group, and those that it adds
// with -o wide. Times are replaced by *.
func columns(t *testing.T, name string) (narrow, wide string) {
	t.Helper()
	config := apiServer.Config(t)
	httpClient, err := rest.HTTPClientFor(config)
	must.Succeed(t, err)
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		strings.TrimSuffix(config.Host, "/")+"/apis/conclave.dev/v1/namespaces/default/electiongroups/"+name, http.NoBody)
	must.Succeed(t, err)
	ask.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := httpClient.Do(ask)
	must.Succeed(t, err)
	defer answer.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(answer.Body).Decode(&table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("got %d rows (%v), want 1", len(table.Rows), err)
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

// fullStatus returns a status with all fields that a group with a coordinator can have.
func fullStatus(g *v1.ElectionGroup, term int64) v1.ElectionGroupStatus {
	members, identities := g.Spec.Members, map[string]v1.Identity{}
	for _, m := range members {
		identities[m.Pod] = "00000000000000aa"
	}
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	s := v1.ElectionGroupStatus{
		ObservedGeneration: g.Generation, Term: term,
		Coordinator: &v1.Coordinator{
			Pod: members[0].Pod, Priority: members[0].Priority, Term: term, ElectedAt: metav1.NewMicroTime(now.Time),
		},
		Members: new(int32(len(members))), ReadyMembers: new(int32(len(members))),
		Protocol: v1.ProtocolState{
			MemberList: &v1.MemberList{
				Version: 2, State: v1.ListAdopting, Members: members, Identities: identities, LeaseMillis: 9,
				Previous: &v1.PreviousList{Version: 1, Members: members, Identities: identities, LeaseMillis: 9},
			},
			Document: &v1.PublishedDocument{Revision: 1, Digest: strings.Repeat("0", 64)},
		},
	}
	for _, m := range members {
		s.Processes = append(s.Processes, v1.Process{
			Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Reason: v1.ProcessUnreachable, Since: &now,
		})
	}
	for condition, reason := range map[v1.ConditionType]v1.Reason{
		v1.ConditionReady: v1.ReasonHealthy, v1.ConditionAvailable: v1.ReasonElected,
		v1.ConditionAgentsConnected: v1.ReasonConnected,
	} {
		s.Conditions = append(s.Conditions, metav1.Condition{
			Type: string(condition), Status: metav1.ConditionTrue, Reason: string(reason), Message: "The group is healthy",
			LastTransitionTime: now,
		})
	}
	return s
}

// TestLargestGroupFits tests a group of a hundred pods, with names of the maximum length of a workload's pods, and a
// full status with a message, a node and a zone in each row. The rules must stay within the cost budget of the API
// server, and the group must fit into etcd.
func TestLargestGroupFits(t *testing.T) {
	c := typedClient(t)
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "largest"}}
	for i := range int32(v1.MaxMembers) {
		pod := fmt.Sprintf("%s-%03d", strings.Repeat("p", 59), i)
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: pod, Priority: v1.MaxPriority - i})
	}
	must.Succeed(t, c.Create(t.Context(), g))
	g.Status = fullStatus(g, 7)
	for i := range g.Status.Processes {
		row := &g.Status.Processes[i]
		row.Message, row.Node, row.Zone = strings.Repeat("m", 256), strings.Repeat("n", 253), strings.Repeat("z", 63)
		g.Status.Protocol.MemberList.Departed = append(g.Status.Protocol.MemberList.Departed, g.Status.Processes[i].Pod)
	}
	must.Succeed(t, c.Status().Update(t.Context(), g))
	g.Status.Protocol.MemberList.State = v1.ListSettled
	must.Succeed(t, c.Status().Update(t.Context(), g))
	list := g.Status.Protocol.MemberList
	g.Status.Protocol.MemberList = &v1.MemberList{
		Version: 3, State: v1.ListAdopting, Members: list.Members, Identities: list.Identities, LeaseMillis: 9,
		Previous: &v1.PreviousList{Version: 2, Members: list.Members, Identities: list.Identities, LeaseMillis: 9},
	}
	must.Succeed(t, c.Status().Update(t.Context(), g))
	must.Succeed(t, c.Delete(t.Context(), g))
}

// TestSamples tests that the API server accepts all samples, also those of groups in documents, and that each algorithm
// has one.
func TestSamples(t *testing.T) {
	c := connect(t)
	shown := map[v1.Algorithm]bool{}
	files, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("got no samples", err)
	}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/recipes/*.md"} {
		pages, _ := filepath.Glob(pattern)
		files = append(files, pages...)
	}
	for _, file := range files {
		for i, object := range readObjects(t, file) {
			object.SetNamespace("default")
			if err := c.Create(t.Context(), object); err != nil {
				t.Errorf("%s, document %d: %v", file, i+1, causes(t, err))
				continue
			}
			if object.GetKind() == "ElectionGroup" {
				var g v1.ElectionGroup
				must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &g))
				shown[g.Spec.Algorithm] = true
			}
			expect.Succeed(t, c.Delete(t.Context(), object))
		}
	}
	expect.Lenf(t, shown, len(catalog.Names()), "algorithms of the samples")
}

// readObjects returns the objects in a file. Of a document, these are the groups in its blocks, and what is beside
// them.
func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data := must.ReadFile(t, file)
	if strings.HasSuffix(file, ".md") {
		blocks := regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$").FindAllSubmatch(data, -1)
		data = nil
		for _, block := range blocks {
			if bytes.Contains(block[1], []byte("kind: ElectionGroup\n")) {
				data = append(append(data, "---\n"...), block[1]...)
			}
		}
	}
	var all []*unstructured.Unstructured
	reader := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(data), 1<<16)
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

// TestNamesAndBoundsOfAgents tests that the schema and the agents have the same algorithms and bounds.
func TestNamesAndBoundsOfAgents(t *testing.T) {
	names := schema(t).Properties["spec"].Properties["algorithm"].Enum
	if want := catalog.Names(); !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(want))) {
		t.Errorf("got algorithms %v in the schema, want %v as in agents", names, want)
	}
	expect.Equalf(t, v1.MaxPriority, election.MaxPriority, "maximum priority (as in agents)")
	key := v1.RoleLabel(strings.Repeat("a", v1.MaxNameLength))
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		t.Errorf("got invalid label key %s: %v", key, wrong)
	}
	if _, err := os.Stat("../../docs/adr/0008-what-the-status-remembers.md"); err != nil {
		t.Error("the comment of MemberList refers to a missing page:", err)
	}
}

// TestLabelSelector tests the conversion to the type of apimachinery.
func TestLabelSelector(t *testing.T) {
	selector := &v1.PodSelector{
		MatchLabels: map[string]v1.LabelValue{"app": "ledger", "tier": ""},
		MatchExpressions: []v1.LabelRequirement{
			{Key: "zone", Operator: v1.NotIn, Values: []v1.LabelValue{"moon", "mars"}},
			{Key: "canary", Operator: v1.DoesNotExist},
		},
	}
	want, err := json.Marshal(selector)
	must.Succeed(t, err)
	got, err := json.Marshal(selector.LabelSelector())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}
