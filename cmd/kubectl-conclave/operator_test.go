package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// createSilentLease creates the Lease of an operator that hasn't renewed it for three minutes.
func (e *env) createSilentLease(t *testing.T, namespace string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operatorlease.Name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now().Add(-3 * time.Minute)))},
	}
	must.Succeed(t, e.Create(t.Context(), lease))
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
		if got := e.runCommand(t, command, "ledger"); !strings.HasPrefix(got.stderr, want) ||
			strings.Count(got.stderr, "\n") != 1 || got.status != 0 {
			t.Errorf("%s: got exit status %d, %q, want one line that begins with %q", command, got.status, got.stderr, want)
		}
	}
	if got := e.runCommand(t, "step-down", "ledger"); !strings.HasPrefix(got.stderr, want) || got.status != 1 {
		t.Errorf("step-down: got %+v, want a line that begins with %q", got, want)
	}
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	must.Succeed(t, e.Update(t.Context(), lease))
	if got := e.runCommand(t, "status", "ledger"); got.stderr != "" || got.status != 0 {
		t.Errorf("the operator runs: got exit status %d, %q, want no warning", got.status, got.stderr)
	}
}

// TestOperatorIsFoundInAnyNamespace: also by commands about groups of other namespaces.
func TestOperatorIsFoundInAnyNamespace(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	e.CreateOperatorIn(t, "default")
	expect.Containsf(t, e.runCommand(t, "version").stdout, " in namespace default, ", "version")
	e.createSilentLease(t, "default")
	const silent = "The operator in namespace default has not shown that it runs for 3m"
	if got := e.runCommand(t, "status"); !strings.HasPrefix(got.stderr, silent) || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("status: got %q, want one line that begins with %q", got.stderr, silent)
	}
}

// TestSecondOperatorIsReported: somebody has installed another one by mistake.
func TestSecondOperatorIsReported(t *testing.T) {
	e := newEnv(t)
	e.CreateOperatorIn(t, "default")
	e.CreateOperator(t)
	if got := e.runCommand(t, "check"); got.status != 3 ||
		!strings.Contains(got.stdout, "PROBLEM  operator: Operators are installed in several namespaces: bank, default.\n") {
		t.Errorf("check: got %+v, want a problem", got)
	}
	if got := e.runCommand(t, "version"); !strings.HasSuffix(got.stderr,
		"operators are installed in several namespaces: bank, default\n") {
		t.Errorf("version: got %+v, want both namespaces", got)
	}
}

// TestClockOfThisMachineDoesNotMatter: the cluster's clocks are three hours behind, or the one
// of this machine is ahead. Ages are those in the cluster, and the operator runs.
func TestClockOfThisMachineDoesNotMatter(t *testing.T) {
	const ahead = 3 * time.Hour
	e := newEnv(t)
	g := e.CreateGroup(t, "ledger")
	there := time.Now().Add(-ahead)
	g.Status.Coordinator.ElectedAt = metav1.NewMicroTime(there.Add(-10*time.Minute - 30*time.Second))
	must.Succeed(t, e.Status().Update(t.Context(), g))
	e.CreateOperator(t)
	renewed := metav1.NewMicroTime(there)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: operatorlease.Name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
	}
	must.Succeed(t, e.Create(t.Context(), lease))
	need.Complete(t)
	config := apiServer.Config(t)
	transport, err := rest.TransportFor(config)
	must.Succeed(t, err)
	target, err := url.Parse(config.Host)
	must.Succeed(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	proxy.ModifyResponse = func(response *http.Response) error {
		response.Header.Set("Date", time.Now().Add(-ahead).UTC().Format(http.TimeFormat))
		return nil
	}
	server := httptest.NewServer(proxy)
	defer server.Close()
	for _, command := range []string{"status", "explain"} {
		got := e.runCommand(t, command, "ledger", "--server", server.URL)
		if !strings.Contains(got.stdout, "elected 10m ago") && command == "status" ||
			strings.Contains(got.stderr, "has not shown that it runs") || got.status != 0 {
			t.Errorf("%s: got exit status %d, %s and\n%s\nwant the age in the cluster", command,
				got.status, got.stderr, got.stdout)
		}
	}
}

// version prints the versions of all parts. Without an operator, it says so.
func TestVersionIncludesOperatorAndAgents(t *testing.T) {
	e := newEnv(t)
	without := e.runCommand(t, "version")
	if without.status != 0 ||
		without.stderr != "the versions of operator and agents are unknown: no operator is installed in this cluster\n" {
		t.Errorf("without an operator: got %+v", without)
	}
	if got := e.runCommand(t, "version", "--server", "http://127.0.0.1:1"); got.status != 0 ||
		strings.Count(got.stderr, "connection refused") != 1 {
		t.Errorf("without an API server: got %+v, want the reason once", got)
	}
	e.CreateOperator(t)
	for _, name := range []string{"ledger-0", "ledger-1"} {
		e.createPod(t, name, func(pod *corev1.Pod) {
			withAgent(pod)
			pod.Spec.InitContainers[0].Image = "example.com/agent:1"
		})
	}
	// Other tests have pods with other agents.
	want := regexp.MustCompile(`^plugin +\S+\noperator +example.com/manager:2 in namespace bank, 0 of 0 replicas ` +
		`available\n(agents .*\n)*agents +example.com/agent:1 in 2 pods\n(agents .*\n)*$`)
	if got := e.runCommand(t, "version"); got.status != 0 || got.stderr != "" || !want.MatchString(got.stdout) {
		t.Errorf("got %+v, want %s", got, want)
	}
	expect.Lenf(t, strings.Fields(runCommand(t, nil, "--version").stdout), 1, "words of --version")
}

func TestVersionNeedsNoCluster(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for kubeconfig, reason := range map[string]string{
		"": "no kubeconfig found; set --kubeconfig or the environment variable KUBECONFIG",
		"/not/existing": `the environment variable KUBECONFIG names no existing file, or one without a ` +
			`cluster: "/not/existing"`,
	} {
		t.Setenv("KUBECONFIG", kubeconfig)
		got := runCommand(t, nil, "version")
		want := "the versions of operator and agents are unknown: cannot select a cluster: " + reason + "\n"
		if got.status != 0 || !strings.HasPrefix(got.stdout, "plugin ") || got.stderr != want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
}
