package main

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

// inject uses the image and the identity service of the installed operator, in whichever namespace it runs. Flags have precedence.
func TestInjectUsesInstalledOperator(t *testing.T) {
	e := newEnv(t)
	cluster := []string{"--kubeconfig", e.Kubeconfig, "-n", e.Namespace, "--ca-bundle", "testdata/inject/ca.pem"}
	without := runInject(t, pod, cluster...)
	if want := "error: cannot find the image of the agent (no operator is installed in this cluster): set --agent-image\n"; without.status != 1 || without.stderr != want {
		t.Errorf("without an operator: got %+v, want %s", without, want)
	}
	if got := runInject(t, strings.ReplaceAll(pod, "enabled", "disabled"), cluster...); got.status != 0 {
		t.Errorf("nothing to inject: got %+v, want no need for an image", got)
	}
	e.CreateOperator(t)
	with := runInject(t, pod, cluster...)
	for _, want := range []string{"image: example.com/agent:2\n", "value: https://conclave-identity." + e.Namespace + ".svc\n"} {
		if with.status != 0 || !strings.Contains(with.stdout, want) {
			t.Errorf("with an operator: got %+v, want %s", with, want)
		}
	}
	if want := "the agent's image is example.com/agent:2, that of the operator in namespace " + e.Namespace + "\n"; !strings.HasPrefix(with.stderr, want) {
		t.Errorf("got %q, want %q", with.stderr, want)
	}
	flags := runInject(t, pod, append(cluster, "--agent-image", "mine:1", "--identity", "https://other")...)
	if !strings.Contains(flags.stdout, "image: mine:1\n") || !strings.Contains(flags.stdout, "value: https://other\n") {
		t.Errorf("with flags: got %+v", flags)
	}
}

// --group adds the label and the annotation, keeps other groups, and doesn't change pods that have the agent.
func TestInjectAddsPodsToGroup(t *testing.T) {
	const bare = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"mail"},"spec":{"template":{"spec":{"containers":[{"name":"application"}]}}}}`
	got := runInject(t, bare, append(offline, "--group", "ledger")...)
	for _, want := range []string{"conclave.dev/agent: enabled\n", "conclave.dev/groups: ledger\n", "image: conclave/agent:1\n"} {
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	again := runInject(t, got.stdout, append(offline, "--group", "news")...)
	if again.stdout != got.stdout || !strings.HasPrefix(again.stderr, "Deployment mail: unchanged, it has the agent already\n") {
		t.Errorf("with an agent: got %+v, want no change", again)
	}
	if got := runInject(t, pod, append(offline, "--group", "news")...); !strings.Contains(got.stdout, "conclave.dev/groups: ledger,news\n") {
		t.Errorf("with another group: got %+v", got)
	}
	if got := runInject(t, pod, append(offline, "--group", "ledger")...); !strings.Contains(got.stdout, "conclave.dev/groups: ledger\n") {
		t.Errorf("with the same group: got %+v", got)
	}
	if got := runInject(t, pod, append(offline, "--group", "No Group")...); got.status != 2 || !strings.Contains(got.stderr, `--group must be the name of a group, such as ledger, got "No Group"`) {
		t.Errorf("got %+v, want a usage error", got)
	}
	service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"mail"},"spec":{}}` + "\n"
	if got := runInject(t, service, append(offline, "--group", "ledger")...); got.stdout != service {
		t.Errorf("without pods: got %+v, want no change", got)
	}
}

// createSilentLease creates the Lease of an operator that hasn't renewed it for three minutes.
func (e *env) createSilentLease(t *testing.T, namespace string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operatorlease.Name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now().Add(-3 * time.Minute)))},
	}
	if err := e.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Delete(context.WithoutCancel(t.Context()), lease) })
	return lease
}

// TestStatusMayBeOutdated: without the operator, a status looks as if nothing happened.
func TestStatusMayBeOutdated(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.CreateOperator(t)
	lease := e.createSilentLease(t, e.Namespace)
	const want = "The operator in namespace bank has not shown that it runs for 3m"
	for _, command := range []string{"status", "explain"} {
		if got := e.runCommand(t, command, "ledger"); !strings.HasPrefix(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 || got.status != 0 {
			t.Errorf("%s: got exit status %d, %q, want one line that begins with %q", command, got.status, got.stderr, want)
		}
	}
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	if err := e.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if got := e.runCommand(t, "status", "ledger"); got.stderr != "" || got.status != 0 {
		t.Errorf("the operator runs: got exit status %d, %q, want no warning", got.status, got.stderr)
	}
}

// TestSeveralOperators: each of two operators serves some namespaces. A command is about the
// operator of its namespace.
func TestSeveralOperators(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.CreateOperatorIn(t, "default", "example.com/agent:1", "--leader-elect", "--agent-image=example.com/agent:7", "--watch-namespaces=mail,"+e.Namespace)
	e.CreateOperator(t, "--watch-namespaces=shop")
	cluster := []string{"--kubeconfig", e.Kubeconfig, "--ca-bundle", "testdata/inject/ca.pem"}
	for _, want := range []string{"image: example.com/agent:7\n", "value: https://conclave-identity.default.svc\n"} {
		if got := runInject(t, pod, append(cluster, "-n", e.Namespace)...); got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("inject: got %+v, want %s", got, want)
		}
	}
	want := "error: cannot find the image of the agent (no operator serves the namespace kube-public): set --agent-image\n"
	if got := runInject(t, pod, append(cluster, "-n", "kube-public")...); got.status != 1 || got.stderr != want {
		t.Errorf("inject in a namespace that no operator serves: got %+v, want %s", got, want)
	}
	// Nothing rolls out the Deployment in this test.
	if got := e.runCommand(t, "upgrade", "ledger"); !strings.HasPrefix(got.stderr, "error: the operator is being updated") || !strings.HasSuffix(got.stderr, " -n default\n") {
		t.Errorf("upgrade: got %+v, want it to wait for the operator of this namespace", got)
	}
	got := e.runCommand(t, "version")
	for _, want := range []string{" in namespace default, ", " in namespace bank, "} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("version: got %+v, want an operator%s", got, want)
		}
	}
	for _, in := range []string{"default", e.Namespace} { // Neither operator runs.
		e.createSilentLease(t, in)
	}
	silent := "The operator in namespace default has not shown that it runs for 3m"
	if got := e.runCommand(t, "status"); !strings.HasPrefix(got.stderr, silent) || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("status: got %q, want one line that begins with %q", got.stderr, silent)
	}
}
