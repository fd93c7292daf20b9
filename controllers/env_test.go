package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// env is a namespace of an API server, with pods that have fake agents, and operators that start and stop.
type env struct {
	t            testing.TB
	config       *rest.Config
	client       client.Client
	namespace    string
	certificates *fakeagent.CertificateFactory
	network      fakeagent.Network

	mu     sync.Mutex
	agents map[string]*fakeagent.Agent
	ips    int
}

// newEnv returns a namespace for a test that runs in parallel with others.
func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newSequentialEnv(t)
}

// newSequentialEnv is newEnv for a test that runs alone, or is parallel already.
func newSequentialEnv(t *testing.T) *env {
	t.Helper()
	config := apiServer.Config(t)
	certificates, err := fakeagent.NewCertificateFactory()
	must.Succeed(t, err)
	e := &env{
		t: t, config: config, client: testclient.New(t, config), certificates: certificates,
		agents: map[string]*fakeagent.Agent{},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "controllers-"}}
	must.Succeed(t, e.client.Create(t.Context(), namespace))
	e.namespace = namespace.Name
	return e
}

// createGroup creates a group with the pods as members: the first has priority 10, the next 20, and so on.
func (e *env) createGroup(name string, change func(*v1.ElectionGroup), pods ...string) *v1.ElectionGroup {
	e.t.Helper()
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	for i, pod := range pods {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(10 * (i + 1))})
	}
	if change != nil {
		change(group)
	}
	must.Succeed(e.t, e.client.Create(e.t.Context(), group))
	return group
}

// startLedger creates pods with agents, and a group of them, and waits until the agents have its list.
func (e *env) startLedger(change func(*v1.ElectionGroup), pods ...string) {
	e.t.Helper()
	for _, pod := range pods {
		e.pod(pod, "ledger")
	}
	e.createGroup("ledger", change, pods...)
	e.awaitAdopted("ledger", 0, pods...)
}

func (e *env) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.namespace, Name: name}
}

func (e *env) metadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.namespace, Name: name}
}

func (e *env) group(name string) *v1.ElectionGroup {
	e.t.Helper()
	group := &v1.ElectionGroup{}
	must.Succeed(e.t, e.client.Get(e.t.Context(), e.key(name), group))
	return group
}

// edit changes a group as a user does.
func (e *env) edit(name string, change func(*v1.ElectionGroup)) {
	e.t.Helper()
	group := &v1.ElectionGroup{ObjectMeta: e.metadata(name)}
	e.update([]client.Object{group}, func(client.Object) { change(group) })
}

// update reads objects, and writes what a change changes of each.
func (e *env) update(objects []client.Object, change func(client.Object)) {
	e.t.Helper()
	for _, object := range objects {
		must.Succeed(e.t, e.client.Get(e.t.Context(), client.ObjectKeyFromObject(object), object))
		before, _ := object.DeepCopyObject().(client.Object)
		change(object)
		must.Succeed(e.t, e.client.Patch(e.t.Context(), object, client.MergeFrom(before)))
	}
}

// eventually waits until a condition holds.
func (e *env) eventually(what string, holds func() bool) {
	e.t.Helper()
	timeout := time.After(testwait.Limit)
	for !holds() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-timeout:
			e.t.Fatalf("timed out waiting until %s\n%s", what, e.describe())
		}
	}
}

// describe returns the state that a failed test prints.
func (e *env) describe() string {
	var groups v1.ElectionGroupList
	if err := e.client.List(context.Background(), &groups, client.InNamespace(e.namespace)); err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := range groups.Items {
		status, err := json.MarshalIndent(groups.Items[i].Status, "", " ")
		fmt.Fprintln(&text, groups.Items[i].Name, string(status), err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, agent := range e.agents {
		fmt.Fprintf(&text, "%s received %d commands\n", name, len(agent.Calls()))
	}
	return text.String()
}

// awaitCoordinator waits until the status has a coordinator and its term.
func (e *env) awaitCoordinator(group, pod string, term int64) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%s is the coordinator of %s in term %d", pod, group, term), func() bool {
		status := e.group(group).Status
		return status.Coordinator != nil && status.Coordinator.Pod == pod && status.Term == term &&
			status.Coordinator.Term == term
	})
}

const bases = "../config/crd/bases"

var apiServer = apiserver.New(bases)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	apiServer.Main(m)
}
