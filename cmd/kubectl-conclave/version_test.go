package main

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// version and --version print the versions of all parts. Without an operator, they say so.
func TestVersionIncludesOperatorAndAgents(t *testing.T) {
	e := newEnv(t)
	without := e.runCommand(t, "version")
	if without.status != 0 || without.stderr != "the versions of operator and agents are unknown: no operator is installed in this cluster\n" {
		t.Errorf("without an operator: got %+v", without)
	}
	if got := e.runCommand(t, "version", "--server", "http://127.0.0.1:1"); got.status != 0 || strings.Count(got.stderr, "connection refused") != 1 {
		t.Errorf("without an API server: got %+v, want the reason once", got)
	}
	e.CreateOperator(t)
	for _, name := range []string{"ledger-0", "ledger-1"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: map[string]string{v1.LabelAgent: v1.AgentEnabled}},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: v1.AgentContainer, Image: "example.com/agent:1"}},
				Containers:     []corev1.Container{{Name: "application", Image: "example.com/application:1"}},
			},
		}
		must.Succeed(t, e.Create(t.Context(), pod))
	}
	// Other tests have pods with other agents.
	want := regexp.MustCompile(`^plugin +\S+\noperator +example.com/manager:2 in namespace bank, 0 of 0 replicas available\n(agents .*\n)*agents +example.com/agent:1 in 2 pods\n(agents .*\n)*$`)
	for _, flag := range []string{"version", "--version"} {
		if got := e.runCommand(t, flag); got.status != 0 || got.stderr != "" || !want.MatchString(got.stdout) {
			t.Errorf("%s: got %+v, want %s", flag, got, want)
		}
	}
	if got := e.runCommand(t, "version", "--client"); len(strings.Fields(got.stdout)) != 1 {
		t.Errorf("--client: got %+v, want only a version", got)
	}
}

func TestVersionNeedsNoCluster(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for kubeconfig, reason := range map[string]string{
		"":              "no kubeconfig found; set --kubeconfig or the environment variable KUBECONFIG",
		"/not/existing": `the environment variable KUBECONFIG names no existing file, or one without a cluster: "/not/existing"`,
	} {
		t.Setenv("KUBECONFIG", kubeconfig)
		got := runCommand(t, nil, "--version")
		want := "the versions of operator and agents are unknown: cannot select a cluster: " + reason + "\n"
		if got.status != 0 || !strings.HasPrefix(got.stdout, "plugin ") || got.stderr != want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
}
