package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// createNode creates a node of a zone. Nodes have no namespace, so both get that of the test.
func (e *env) createNode(t *testing.T, name, zone string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name + "-" + e.Namespace, Labels: map[string]string{corev1.LabelTopologyZone: zone + "-" + e.Namespace},
	}}
	must.Succeed(t, e.Create(t.Context(), node))
	t.Cleanup(func() { _ = e.Delete(context.WithoutCancel(t.Context()), node) })
	return node
}

// createElected creates a group whose status has a coordinator on a node, and another member on another.
func (e *env) createElected(t *testing.T, name, coordinator, node, other string) {
	t.Helper()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
	g.Spec.Members = []v1.Member{{Pod: name + "-0", Priority: 1}, {Pod: name + "-1", Priority: 2}}
	must.Succeed(t, e.Create(t.Context(), g))
	e.setCoordinator(t, name, coordinator, 7, node, other)
}

func (e *env) setCoordinator(t *testing.T, name, pod string, term int64, node, other string) {
	t.Helper()
	g := &v1.ElectionGroup{}
	must.Succeed(t, e.Get(t.Context(), client.ObjectKey{Namespace: e.Namespace, Name: name}, g))
	g.Status.Term = term
	g.Status.Coordinator = nil
	if pod != "" {
		g.Status.Coordinator = &v1.Coordinator{Pod: pod, Priority: 1, Term: term, ElectedAt: metav1.NowMicro()}
	}
	g.Status.Processes = []v1.Process{
		{Pod: name + "-1", Priority: 2, Status: v1.ProcessCoordinator, Node: node},
		{Pod: name + "-0", Priority: 1, Status: v1.ProcessNormal, Node: other},
	}
	must.Succeed(t, e.Status().Update(t.Context(), g))
}

func (e *env) evacuatedUntil(t *testing.T, node *corev1.Node) string {
	t.Helper()
	must.Succeed(t, e.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	return node.Annotations[v1.AnnotationEvacuateUntil]
}

// The command annotates the nodes of a zone, and waits until another member leads each group.
func TestEvacuate(t *testing.T) {
	e := newEnv(t)
	a, b, other := e.createNode(t, "a", "west"), e.createNode(t, "b", "west"), e.createNode(t, "c", "east")
	zone := "west-" + e.Namespace
	e.createElected(t, "ledger", "ledger-1", a.Name, other.Name)
	e.createElected(t, "mail", "mail-1", b.Name, other.Name)
	e.createElected(t, "audit", "audit-1", other.Name, a.Name)

	lines := e.startCommand(t, "evacuate", "zone", zone, "--for", "30m")
	if got := await(t, lines, "the first line"); !regexp.MustCompile(`^coordinators leave zone ` + zone +
		` \(2 nodes\) until \d{4}-\S+Z$`).MatchString(got) {
		t.Errorf("got %q", got)
	}
	until, err := time.Parse(time.RFC3339, e.evacuatedUntil(t, a))
	if left := time.Until(until); err != nil || left < 29*time.Minute || left > 31*time.Minute {
		t.Errorf("got an evacuation for %s (%v), want about 30m", left, err)
	}
	if e.evacuatedUntil(t, b) == "" || e.evacuatedUntil(t, other) != "" {
		t.Error("want the two nodes of the zone annotated, and no other")
	}
	e.setCoordinator(t, "mail", "", 7, b.Name, other.Name) // It has resigned.
	e.setCoordinator(t, "ledger", "ledger-0", 8, a.Name, other.Name)
	e.setCoordinator(t, "mail", "mail-0", 8, b.Name, other.Name)
	if got := await(t, lines, "the result"); !strings.HasPrefix(got, "2 coordinators left within ") {
		t.Errorf("got %q", got)
	}

	if got := e.runCommand(t, "evacuate", "zone", zone); got.status != 0 ||
		!strings.HasSuffix(got.stdout, "\nno coordinator was there\n") {
		t.Errorf("again: got %+v", got)
	}
	if got, want := e.runCommand(t, "evacuate", "zone", zone, "--end"),
		"coordinators may return to zone west-bank (2 nodes)\n"; got.stdout != want {
		t.Errorf("got %+v, want %q", got, want)
	}
	if e.evacuatedUntil(t, a) != "" || e.evacuatedUntil(t, b) != "" {
		t.Error("after --end: want no annotation")
	}
	got := e.runCommand(t, "evacuate", "node", other.Name, "--timeout", "200ms")
	if want := "3 of 3 coordinators remained for 200ms: bank/audit (audit-1), bank/ledger (ledger-0) and bank/mail " +
		"(mail-0); perhaps"; got.status != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("coordinators that remain: got %+v, want %q", got, want)
	}
}

func TestEvacuateRefusesInput(t *testing.T) {
	e := newEnv(t)
	node := e.createNode(t, "worker-1", "west")
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"evacuate"}, 2, "node NAME or zone NAME is required, such as: kubectl conclave evacuate node worker-3"},
		{[]string{"evacuate", "rack", "7"}, 2, "node NAME or zone NAME is required"},
		{
			[]string{"evacuate", "node", node.Name, "--for", "-1h"},
			2,
			"--for must be above 0, got -1h0m0s; to end an evacuation, use --end",
		},
		{[]string{"evacuate", "node", node.Name, "--timeout", "0s"}, 2, "--timeout must be above 0, got 0s"},
		{[]string{"evacuate", "node", strings.Replace(node.Name, "worker", "wroker",
			1)}, 1, "node wroker-1-bank not found (did you mean worker-1-bank?)"},
		{[]string{"evacuate", "zone", "north-" +
			e.Namespace}, 1, "no node has the label topology.kubernetes.io/zone=north-bank"},
	} {
		if got := e.runCommand(t, c.args...); got.status != c.status || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: got %+v, want %d %q", c.args, got, c.status, c.want)
		}
	}
	expect.Equalf(t, e.evacuatedUntil(t, node), "", "annotation")
}

// place creates a group whose members, with the highest priority first, are on these nodes.
func (e *env) place(t *testing.T, group string, nodes ...string) {
	t.Helper()
	g := e.CreateGroup(t, group)
	for i, node := range nodes {
		row := &g.Status.Processes[i]
		row.Node, row.Zone = node, "zone-of-"+node
	}
	must.Succeed(t, e.Status().Update(t.Context(), g))
}

func TestNodesShowsWhatEachStops(t *testing.T) {
	e := newEnv(t)
	e.place(t, "ledger", "node-3", "node-3", "node-3")
	e.place(t, "mail", "node-3", "node-1", "node-1")
	e.place(t, "audit", "node-2", "node-3", "node-1")
	got := e.runCommand(t, "nodes")
	checkGolden(t, "nodes.txt", got.stdout)
	if got.status != 0 || got.stderr != "" {
		t.Errorf("got %+v, want exit status 0 and no note", got)
	}
	for _, output := range []string{"json", "yaml"} {
		var rows []describe.NodeRow
		must.Succeed(t, yaml.UnmarshalStrict([]byte(e.runCommand(t, "nodes", "-o", output).stdout), &rows))
		if len(rows) != 3 || rows[0].Node != "node-3" || len(rows[0].Coordinators) != 2 || rows[0].Stops[0] != "bank/ledger" {
			t.Errorf("-o %s: got %+v", output, rows)
		}
	}
}

func TestNodesWithoutMembersExplainsIt(t *testing.T) {
	e := newEnv(t)
	got := e.runCommand(t, "nodes")
	if want := "No member of a group is on a node: there are no groups in namespace bank; for those of all namespaces, " +
		"use -A.\n"; got.status != 0 || got.stdout != "" || got.stderr != want {
		t.Errorf("without groups: got %+v, want %q", got, want)
	}
	expect.Equalf(t, e.runCommand(t, "nodes", "-o", "json").stdout, "[]\n", "output without groups")
	e.CreateGroup(t, "ledger")
	got = e.runCommand(t, "nodes")
	if want := "No member of a group is on a node, according to their statuses.\n"; got.status != 0 ||
		got.stdout != "" || got.stderr != want {
		t.Errorf("without nodes: got %+v, want %q", got, want)
	}
}

// runAction runs the action for GitHub's workflows as a job does, and returns the job's summary and the log.
func runAction(t *testing.T, arguments, budgets string) (summary, log string, err error) {
	t.Helper()
	const script = "../../.github/actions/chaos/run"
	_, err = os.ReadFile(script) // Go's test cache then depends on it.
	must.Succeed(t, err)
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), script)
	command.Env = append(os.Environ(), "ARGUMENTS="+arguments, "BUDGETS="+budgets, "RUNNER_TEMP="+folder,
		"GITHUB_STEP_SUMMARY="+filepath.Join(folder, "summary"),
		"KUBECONFIG="+filepath.Join(folder, "none"))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	err = command.Run()
	text, readErr := os.ReadFile(filepath.Join(folder, "summary"))
	must.Succeed(t, readErr)
	return string(text), stderr.String(), err
}

func TestActionPassesArgumentsAndReport(t *testing.T) {
	summary, log, err := runAction(t, "--leader 'lease/web' --help", "")
	if err != nil || !strings.Contains(summary, "--observe") {
		t.Errorf("got error %v, log %q and summary %q, want the help in the summary", err, log, summary)
	}
	_, log, err = runAction(t, "--leader lease/web --kinds pod", "p99(elected) > 20s\n\n  three-leaders > 0\n")
	if err == nil || !strings.Contains(log, "three-leaders") || strings.Contains(log, "20s") {
		t.Errorf("got error %v and log %q, want that the second budget is refused", err, log)
	}
	_, log, err = runAction(t, "--leader 'exec:echo $(id)' --selector app=web --colour", "")
	if err == nil || !strings.Contains(log, "unknown flag: --colour") {
		t.Errorf("got error %v and log %q, want that the unknown flag is refused", err, log)
	}
	_, log, err = runAction(t, "--leader lease/web\n  --kinds pod", "p99(elected) > 20s\nflaps > 0")
	if err == nil || strings.Contains(log, "flaps") || !strings.Contains(log, "cluster") {
		t.Errorf("got error %v and log %q, want that only the cluster is missing", err, log)
	}
}
