package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Nothing is broken if the input is invalid: each of these runs ends before the first fault, with one line.
func TestChaosRefusesBeforeTheFirstFault(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	small := e.CreateGroup(t, "small")
	small.Status.Members = new(int32(2))
	must.Succeed(t, e.Status().Update(t.Context(), small))
	e.SetCoordinator(t, e.CreateGroup(t, "vacant"), -1, 100)
	for args, want := range map[string]string{
		"missing --yes": "group missing not found in namespace bank; to list all groups, run: kubectl get electiongroups -A",
		"vacant --yes":  "group vacant has no coordinator; for the reason, run: kubectl conclave explain vacant -n bank",
		"small --yes":   "group small has 2 members, and needs 3 to fail over in Majority mode: add members",
		"ledger --kinds freeze -y": "faults of kind freeze aren't possible: it needs the machines of " +
			"the cluster: see --machines",
		"ledger --kinds pod": "chaos breaks group ledger: add --yes, or label the group: kubectl label " +
			"electiongroup ledger -n bank conclave.dev/chaos=enabled",
		"ledger --yes --timeout 1s": "group ledger must settle before the first fault: ",
		"ledger --yes --as somebody": `electiongroups.conclave.dev "ledger" is forbidden: User "somebody" cannot get ` +
			`resource "electiongroups"`,
	} {
		t.Run(args, func(t *testing.T) {
			got := e.runCommand(t, append([]string{"chaos"}, strings.Fields(args)...)...)
			lines := strings.Split(strings.TrimSuffix(got.stderr, "\n"), "\n")
			if last := lines[len(lines)-1]; got.status != 1 || !strings.HasPrefix(last, "error: "+want) {
				t.Errorf("got exit status %d, %s, want 1, error: %s", got.status, got.stderr, want)
			}
			expect.Equalf(t, got.stdout, "", "stdout")
		})
	}
}

// Any other leader is refused in one line as well.
func TestChaosRefusesLeadersThatCannotBeJudged(t *testing.T) {
	e := newEnv(t)
	for name, labels := range map[string]map[string]string{
		"web-0": {"app": "web", "role": "leader"}, "bare-0": {"is": "first"},
	} {
		e.createPod(t, name, withLabels(labels))
	}
	for args, want := range map[string]string{
		"--leader lease/missing": "lease missing not found in namespace bank; to list all, run: kubectl get leases -A",
		"--leader label:role=boss": "no pod in namespace bank leads: none has the label role=boss: " +
			"select the candidates with --selector",
		"--leader label:role=leader": "1 pod in namespace bank has the labels app=web, and 2 are needed to " +
			"fail over: add replicas, or choose others with --selector",
		"--leader label:is=first":     "pod bare-0, which leads, has no other labels: select the candidates with --selector",
		"--leader http://8080/leader": "--leader http://8080/leader needs --selector: the labels of the pods that may lead",
		"--leader exec:true --selector app": "1 pod in namespace bank has the labels app, and 2 are needed to " +
			"fail over: add replicas, or choose others with --selector",
		"--leader exec:true --selector a=b=c":         `--selector must be such as app=web, got "a=b=c"`,
		"--leader label:role=leader --as somebody":    `pods is forbidden: User "somebody" cannot list resource "pods"`,
		"--leader exec:true --selector app --kinds x": `--kinds: unknown kind of fault "x"`,
	} {
		got := e.runCommand(t, append([]string{"chaos", "--yes"}, strings.Fields(args)...)...)
		if want = "error: " + want; got.status == 0 || !strings.HasPrefix(got.stderr, want) ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: got exit status %d, %s, want %s", args, got.status, got.stderr, want)
		}
	}
}

// Faults of the operator concern its pods, wherever they run.
func TestChaosFindsTheOperator(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	const unknown = "faults of kind manager aren't possible: it isn't known where the operator " +
		"is: see --operator-namespace"
	if got := e.runCommand(t, "chaos", "ledger", "--yes", "--kinds", "manager"); got.status != 1 ||
		!strings.Contains(got.stderr, unknown) {
		t.Errorf("without an operator: got %+v, want %s", got, unknown)
	}
	e.CreateOperator(t)
	got := e.runCommand(t, "chaos", "ledger", "--yes", "--kinds", "manager", "--timeout", "1s")
	if want := "error: group ledger must settle before the first fault"; got.status != 1 ||
		!strings.Contains(got.stderr, want) {
		t.Errorf("with an operator: got %+v, want %s", got, want)
	}
}

// permitChaos labels a group.
func (e *env) permitChaos(t *testing.T, name string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"conclave.dev/chaos":"enabled"}}}`))
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
	must.Succeed(t, e.Patch(t.Context(), g, patch))
}

// The label of one group is no permission to break another one.
func TestChaosConcernsOtherGroupsOfThePods(t *testing.T) {
	e := newEnv(t)
	e.createPod(t, "ledger-0", func(pod *corev1.Pod) {
		pod.Labels = map[string]string{v1.LabelAgent: v1.AgentEnabled}
		pod.Annotations = map[string]string{v1.AnnotationGroups: "ledger,audit"}
	})
	for _, name := range []string{"ledger", "audit", "mail"} {
		e.CreateGroup(t, name)
	}
	const text = "chaos breaks %s: add --yes, or label the %s: kubectl label electiongroup %s -n bank " +
		"conclave.dev/chaos=enabled"
	for _, want := range []string{
		fmt.Sprintf(text, "groups ledger, audit", "groups", "ledger audit"),
		fmt.Sprintf(text, "group audit", "group", "audit"),
		"group ledger must settle before the first fault",
	} {
		if got := e.runCommand(t, "chaos", "ledger", "--kinds", "pod", "--timeout", "1s"); got.status != 1 ||
			!strings.Contains(got.stderr, "error: "+want) {
			t.Errorf("got %+v, want %s", got, want)
		}
		if strings.Contains(want, "groups") {
			e.permitChaos(t, "ledger")
		} else {
			e.permitChaos(t, "audit")
		}
	}
}

// TestLabelPermitsOnlyFaultsOfTheGroup: whoever may label a group need not be permitted to break the operator.
func TestLabelPermitsOnlyFaultsOfTheGroup(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.permitChaos(t, "ledger")
	for kinds, want := range map[string]string{
		"pod": "error: group ledger must settle before the first fault",
		"pod,cordon": "error: add --yes, or select other kinds with --kinds. These faults also concern other pods or " +
			"groups of the cluster: cordon.",
	} {
		if got := e.runCommand(t, "chaos", "ledger", "--kinds", kinds, "--timeout", "1s"); got.status != 1 ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %+v, want %s", kinds, got, want)
		}
	}
}

// A group may be without a coordinator for a moment, because it has just been created, for example.
func TestChaosWaitsForAFailover(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	e.SetCoordinator(t, g, -1, 100)
	elected := time.AfterFunc(500*time.Millisecond, func() { e.SetCoordinator(t, g, 1, 101) })
	defer elected.Stop()
	got := e.runCommand(t, "chaos", "ledger", "--yes", "--timeout", "1s")
	if want := "error: group ledger must settle before the first fault"; got.status != 1 ||
		!strings.Contains(got.stderr, want) {
		t.Errorf("got exit status %d, %s, want 1, %s", got.status, got.stderr, want)
	}
}
