package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/plugin/simulate"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

var apiServer = apiserver.New("../../config/crd/bases")

func TestMain(m *testing.M) { apiServer.Main(m) }

// env is a running API server with a namespace for one test.
type env struct{ *pluginenv.Env }

func newEnv(t *testing.T) *env {
	t.Helper()
	return &env{pluginenv.New(t, apiServer)}
}

// runCommand runs the command against the API server in the test's namespace. The
// output has the namespace bank in its place.
func (e *env) runCommand(t *testing.T, args ...string) result {
	t.Helper()
	got := runCommand(t, nil, append(args, "--kubeconfig", e.Kubeconfig, "-n", e.Namespace)...)
	got.stdout = strings.ReplaceAll(got.stdout, e.Namespace, "bank")
	got.stderr = strings.ReplaceAll(got.stderr, e.Namespace, "bank")
	return got
}

// startCommand runs a command until the test ends, and returns the lines of its output.
func (e *env) startCommand(t *testing.T, args ...string) (lines <-chan string) {
	t.Helper()
	from, to := io.Pipe()
	output := make(chan string, 100)
	root := newRoot()
	root.SetArgs(append(args, "--kubeconfig", e.Kubeconfig, "-n", e.Namespace))
	root.SetOut(to)
	var notes bytes.Buffer
	root.SetErr(&notes)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, root)
		to.Close()
	}()
	go readLines(from, output)
	t.Cleanup(func() {
		cancel()
		if status := <-ended; status != 0 {
			t.Errorf("%v: got exit status %d, %s, want 0", args, status, &notes)
		}
	})
	return output
}

// result is the output of a command and its exit status.
type result struct {
	stdout, stderr string
	status         int
}

// runCommand runs the command in this process. If sample isn't nil, it replaces sim.Sample.
func runCommand(t *testing.T, sample simulate.Sampler, args ...string) result {
	t.Helper()
	root := newRoot()
	if sample != nil {
		original, _, _ := root.Find([]string{"simulate"})
		root.RemoveCommand(original)
		root.AddCommand(simulate.New(sample))
	}
	var stdout, stderr bytes.Buffer
	root.SetArgs(append([]string{}, args...)) // With nil, cobra uses the arguments of the test binary.
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	status := run(t.Context(), root)
	return result{stdout: stdout.String(), stderr: stderr.String(), status: status}
}

// createPod creates a pod with an application, after applying change to it.
func (e *env) createPod(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "application", Image: "application"}}},
	}
	if change != nil {
		change(pod)
	}
	must.Succeed(t, e.Create(t.Context(), pod))
}

// withLabels has the labels of a pod.
func withLabels(labels map[string]string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels = labels }
}

// withAgent makes a pod one that the webhook has changed.
func withAgent(pod *corev1.Pod) {
	pod.Labels = map[string]string{v1.LabelAgent: v1.AgentEnabled}
	pod.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer, Image: "agent", RestartPolicy: new(
		corev1.ContainerRestartPolicyAlways)}}
}

// createViewer lets a user read what the rules say, in the namespace.
func (e *env) createViewer(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "viewer"}, Rules: rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	must.Succeed(t, errors.Join(e.Create(t.Context(), role), e.Create(t.Context(), binding)))
}

// checkGolden compares an output with a golden file.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name), got)
}

// awaitTimeout limits the waits of tests.
const awaitTimeout = testwait.Limit

// await waits for the next value of a channel.
func await[T any](t *testing.T, values <-chan T, what string) (value T) {
	t.Helper()
	select {
	case next, ok := <-values:
		if !ok {
			t.Fatalf("channel closed, want %s", what)
		}
		value = next
	case <-time.After(awaitTimeout):
		t.Fatalf("got nothing within %s, want %s", awaitTimeout, what)
	}
	return value
}
