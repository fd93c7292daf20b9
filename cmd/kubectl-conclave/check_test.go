package main

import (
	"encoding/json"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/plugin/check/rules"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestCheck(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.createPod(t, "ledger-0", withLabels(map[string]string{v1.LabelAgent: "true"}))
	e.createPod(t, "mail", withLabels(map[string]string{v1.LabelAgent: "enabled"}))
	got := e.runCommand(t, "check", "ledger")
	const want = `PROBLEM  operator: No operator is installed in this cluster.
         Install Conclave: docs/install.md describes how.
PROBLEM  pod bank/ledger-0: The label conclave.dev/agent is "true", so the pod has not opted in.
         Set it to "enabled" in the pod template.
WARNING  webhook configuration conclave: There is no webhook, so new pods get no agents.
         Apply the manifests of the operator again.
UNKNOWN  group bank/ledger: No operator is available, so this may not be true: ledger-2 is the coordinator, and all members are up.
`
	if got.status != exitProblem || got.stdout != want || got.stderr != "error: 2 problems were found\n" {
		t.Errorf("got %+v, want exit status %d and\n%s", got, exitProblem, want)
	}
	e.CreateOperator(t)
	all := e.runCommand(t, "check", "-o", "json")
	var decoded struct{ Findings []rules.Finding }
	if err := json.Unmarshal([]byte(all.stdout), &decoded); err != nil || len(decoded.Findings) != 7 {
		t.Fatalf("got %s, want seven findings: %v", all.stdout, err)
	}
	if f := decoded.Findings[0]; f.Level != rules.Problem || f.Object != "operator in namespace bank" {
		t.Errorf("got %+v first, want the operator without replicas", f)
	}
	expect.Containsf(t, all.stdout, "It lacks the permission to update electiongroups/status.",
		"the operator has no role")
	expect.Containsf(t, all.stdout, "pod bank/mail", "the pod of no group, too")
	if missing := e.runCommand(t, "check", "leger"); missing.status != 1 ||
		!strings.Contains(missing.stderr, "did you mean ledger?") {
		t.Errorf("got %+v, want a hint", missing)
	}
	if got := runCommand(t, nil, "check", "-n", "bnak", "--kubeconfig", e.Kubeconfig); got.status != 1 ||
		!strings.Contains(got.stderr, `namespaces "bnak" not found`) {
		t.Errorf("got %+v, want that there is no such namespace", got)
	}
}

// TestCheckContinuesAfterServerError: one list fails, as on a server that is overloaded. What the others contain is
// checked.
func TestCheckContinuesAfterServerError(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	proxy := newFaultyProxy(t)
	proxy.refused.Store(new("networkpolicies"))
	got := runCommand(t, nil, "check", "ledger", "-n", e.Namespace, "--server", proxy.URL)
	for _, want := range []string{"UNKNOWN  the network policies: ", "UNKNOWN  group " + e.Namespace +
		"/ledger: No operator is available"} {
		expect.Containsf(t, got.stdout, want, "output")
	}
	proxy.unavailable.Store(true)
	if got := runCommand(t, nil, "check", "-n", e.Namespace, "--server", proxy.URL); got.status != 1 ||
		!strings.Contains(got.stderr, "nothing could be checked") {
		t.Errorf("without a server: got %+v, want exit status 1", got)
	}
}

// TestCheckNetworkPolicies: check names a policy of pods that aren't connected, and without the permission check says
// so.
func TestCheckNetworkPolicies(t *testing.T) {
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	meta.SetStatusCondition(&g.Status.Conditions, metav1.Condition{
		Type: string(v1.ConditionAgentsConnected), Status: metav1.ConditionFalse, Reason: string(v1.ReasonUnreachable),
	})
	g.Status.Processes[1].Reason = v1.ProcessUnreachable
	must.Succeed(t, e.Status().Update(t.Context(), g))
	for _, name := range []string{"ledger-0", "ledger-1"} {
		e.createPod(t, name, withAgent)
	}
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "default-deny"}}
	must.Succeed(t, e.Create(t.Context(), deny))
	const want = "WARNING  group bank/ledger: Agents aren't connected, and NetworkPolicies select its " +
		"pods: default-deny (ingress).\n"
	if got := e.runCommand(t, "check", "ledger"); got.status != exitProblem || !strings.Contains(got.stdout, want) {
		t.Errorf("got %+v, want in it\n%s", got, want)
	}
	const user = "viewer@example.org"
	e.createViewer(t, user,
		rbacv1.PolicyRule{
			APIGroups: []string{v1.GroupVersion.Group}, Resources: []string{"electiongroups"}, Verbs: []string{"get", "list"},
		},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	if got := e.runCommand(t, "check", "--as", "nobody@example.org"); got.status != 1 ||
		!strings.Contains(got.stderr, "nothing could be checked") {
		t.Errorf("without permissions: got %+v, want exit status 1", got)
	}
	const unknown = `UNKNOWN  the network policies: `
	got := e.runCommand(t, "check", "ledger", "--as", user)
	if !strings.Contains(got.stdout, unknown) || !strings.Contains(got.stdout, `cannot list resource "networkpolicies"`) {
		t.Errorf("got %+v, want in it %s and the reason", got, unknown)
	}
}
