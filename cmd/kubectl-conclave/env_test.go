package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
)

var apiServer = apiserver.New("../../config/crd/bases")

func TestMain(m *testing.M) { apiServer.Main(m) }

// env is a running API server with a namespace for one test.
type env struct {
	client.WithWatch
	namespace string
	// kubeconfig is the path of a kubeconfig for the API server.
	kubeconfig string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	config := apiServer.Config(t)
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: types})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bank-"}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	e := &env{WithWatch: c, namespace: namespace.Name, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(e.kubeconfig, apiServer.Environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return e
}

// runCommand runs the command against the API server in the test's namespace. The
// output has the namespace bank in its place.
func (e *env) runCommand(t *testing.T, args ...string) result {
	t.Helper()
	got := runCommand(t, nil, append(args, "--kubeconfig", e.kubeconfig, "-n", e.namespace)...)
	got.stdout = strings.ReplaceAll(got.stdout, e.namespace, "bank")
	got.stderr = strings.ReplaceAll(got.stderr, e.namespace, "bank")
	return got
}

// longAgo is a time whose printed age doesn't change during a slow test.
var longAgo = metav1.NewTime(time.Now().Add(-10 * 24 * time.Hour).Truncate(time.Second))

// createGroup creates a group of three members, of which the highest is coordinator.
func (e *env) createGroup(t *testing.T, name string) *v1.ElectionGroup {
	t.Helper()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	for i := range 3 {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint(name, "-", i), Priority: int32(10 * (i + 1))})
	}
	if err := e.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	all := int32(3)
	g.Status = v1.ElectionGroupStatus{
		ObservedGeneration: g.Generation, Members: &all, ReadyMembers: &all,
		MemberList: &v1.MemberList{Version: 1, State: v1.ListSettled, Members: g.Spec.Members},
	}
	for i := range g.Spec.Members {
		m := g.Spec.Members[2-i]
		g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Since: &longAgo})
	}
	for t, reason := range map[v1.ConditionType]v1.Reason{
		v1.ConditionReady: v1.ReasonHealthy, v1.ConditionCoordinatorElected: v1.ReasonElected, v1.ConditionAgreed: v1.ReasonAgreed, v1.ConditionAgentsConnected: v1.ReasonConnected,
	} {
		g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{
			Type: string(t), Status: metav1.ConditionTrue, Reason: string(reason), LastTransitionTime: longAgo,
		})
	}
	e.setCoordinator(t, g, 2, 100)
	return g
}

// setCoordinator makes the member of this index the coordinator in the status, or no
// member if the index is negative.
func (e *env) setCoordinator(t *testing.T, g *v1.ElectionGroup, member int, term int64) {
	t.Helper()
	g.Status.Coordinator, g.Status.Term = nil, term
	for i := range g.Status.Processes {
		g.Status.Processes[i].Status = v1.ProcessNormal
	}
	if member >= 0 {
		m := g.Spec.Members[member]
		g.Status.Coordinator = &v1.Coordinator{Pod: m.Pod, Priority: m.Priority, Term: term, ElectedAt: metav1.NewMicroTime(longAgo.Time)}
		g.Status.Processes[2-member].Status = v1.ProcessCoordinator
	}
	if err := e.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// startCommand runs a command until the test ends, and returns the lines of its output.
func (e *env) startCommand(t *testing.T, args ...string) (lines <-chan string) {
	t.Helper()
	from, to := io.Pipe()
	output := make(chan string, 100)
	root := newRoot()
	root.SetArgs(append(args, "--kubeconfig", e.kubeconfig, "-n", e.namespace))
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
