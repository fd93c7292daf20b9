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

// server is the API server for one test, which has a namespace of its own.
type server struct {
	client.WithWatch
	namespace string
	// kubeconfig leads there.
	kubeconfig string
}

func connect(t *testing.T) *server {
	t.Helper()
	config := apiServer.Config(t)
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bank-"}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s := &server{WithWatch: c, namespace: namespace.Name, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(s.kubeconfig, apiServer.Environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// conclave runs the command against the server, in the test's namespace. What it
// says has the namespace bank, whichever it is.
func (s *server) conclave(t *testing.T, args ...string) told {
	t.Helper()
	said := conclave(t, nil, append(args, "--kubeconfig", s.kubeconfig, "-n", s.namespace)...)
	said.out = strings.ReplaceAll(said.out, s.namespace, "bank")
	said.err = strings.ReplaceAll(said.err, s.namespace, "bank")
	return said
}

// long is so long ago that a test isn't told another age if it is slow.
var long = metav1.NewTime(time.Now().Add(-10 * 24 * time.Hour).Truncate(time.Second))

// group makes a group of three, of which the highest leads.
func (s *server) group(t *testing.T, name string) *v1.ElectionGroup {
	t.Helper()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	for i := range 3 {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint(name, "-", i), Priority: int32(10 * (i + 1))})
	}
	if err := s.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	all := int32(3)
	g.Status = v1.ElectionGroupStatus{
		ObservedGeneration: g.Generation, Members: &all, ReadyMembers: &all,
		MemberList: &v1.MemberList{Version: 1, State: v1.ListSettled, Members: g.Spec.Members},
	}
	for i := range g.Spec.Members {
		m := g.Spec.Members[2-i]
		g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Since: &long})
	}
	for t, reason := range map[v1.ConditionType]v1.Reason{
		v1.Ready: v1.ReasonHealthy, v1.CoordinatorElected: v1.ReasonElected, v1.Agreed: v1.ReasonAgreed, v1.AgentsConnected: v1.ReasonConnected,
	} {
		g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{
			Type: string(t), Status: metav1.ConditionTrue, Reason: string(reason), LastTransitionTime: long,
		})
	}
	s.elect(t, g, 2, 100)
	return g
}

// elect has a member lead, or nobody if there is none of that index.
func (s *server) elect(t *testing.T, g *v1.ElectionGroup, member int, term int64) {
	t.Helper()
	g.Status.Coordinator, g.Status.Term = nil, term
	for i := range g.Status.Processes {
		g.Status.Processes[i].Status = v1.ProcessNormal
	}
	if member >= 0 {
		m := g.Spec.Members[member]
		g.Status.Coordinator = &v1.Coordinator{Pod: m.Pod, Priority: m.Priority, Term: term, ElectedAt: metav1.NewMicroTime(long.Time)}
		g.Status.Processes[2-member].Status = v1.ProcessCoordinator
	}
	if err := s.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// background runs a command until the test ends; lines are what it says.
func (s *server) background(t *testing.T, args ...string) (lines <-chan string) {
	t.Helper()
	from, to := io.Pipe()
	said := make(chan string, 100)
	root := newRoot()
	root.SetArgs(append(args, "--kubeconfig", s.kubeconfig, "-n", s.namespace))
	root.SetOut(to)
	var notes bytes.Buffer
	root.SetErr(&notes)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, root)
		to.Close()
	}()
	go split(from, said)
	t.Cleanup(func() {
		cancel()
		if status := <-ended; status != 0 {
			t.Errorf("%v ended with status %d: %s", args, status, &notes)
		}
	})
	return said
}
