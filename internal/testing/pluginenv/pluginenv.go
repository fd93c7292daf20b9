// Package pluginenv creates what the commands of the plugin find in a cluster, in an API server for tests.
package pluginenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// Env is a running API server with a namespace for one test.
type Env struct {
	client.WithWatch
	Namespace string
	// Kubeconfig is the path of a kubeconfig for the API server.
	Kubeconfig string
}

// New creates a namespace in an API server.
func New(t *testing.T, server *apiserver.Server) *Env {
	t.Helper()
	need.Complete(t)
	config := server.Config(t)
	c := testclient.New(t, config)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bank-"}}
	must.Succeed(t, c.Create(t.Context(), namespace))
	e := &Env{WithWatch: c, Namespace: namespace.Name, Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	must.Succeed(t, os.WriteFile(e.Kubeconfig, server.Environment.KubeConfig, 0o600))
	return e
}

// LongAgo is a time whose printed age doesn't change during a slow test.
var LongAgo = metav1.NewTime(time.Now().Add(-10 * 24 * time.Hour).Truncate(time.Second))

// CreateGroup creates a group of three members, of which the highest is coordinator.
func (e *Env) CreateGroup(t *testing.T, name string) *v1.ElectionGroup {
	t.Helper()
	g := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
	for i := range 3 {
		g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: fmt.Sprint(name, "-", i), Priority: int32(10 * (i + 1))})
	}
	must.Succeed(t, e.Create(t.Context(), g))
	all := int32(3)
	g.Status = v1.ElectionGroupStatus{
		ObservedGeneration: g.Generation, Members: &all, ReadyMembers: &all,
		Protocol: v1.ProtocolState{
			MemberList: &v1.MemberList{Version: 1, LeaseMillis: 9, State: v1.ListSettled, Members: g.Spec.Members},
			Document:   &v1.PublishedDocument{Revision: 1, Digest: strings.Repeat("0", 64)},
		},
	}
	for i := range g.Spec.Members {
		m := g.Spec.Members[2-i]
		g.Status.Processes = append(g.Status.Processes,
			v1.Process{Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Since: &LongAgo})
	}
	for t, reason := range map[v1.ConditionType]v1.Reason{
		v1.ConditionReady: v1.ReasonHealthy, v1.ConditionAvailable: v1.ReasonElected,
		v1.ConditionAgentsConnected: v1.ReasonConnected,
	} {
		g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{
			Type: string(t), Status: metav1.ConditionTrue, Reason: string(reason), LastTransitionTime: LongAgo,
		})
	}
	e.SetCoordinator(t, g, 2, 100)
	return g
}

// SetCoordinator makes the member of this index the coordinator in the status, or no member if the index is negative.
func (e *Env) SetCoordinator(t *testing.T, g *v1.ElectionGroup, member int, term int64) {
	t.Helper()
	g.Status.Coordinator, g.Status.Term = nil, term
	for i := range g.Status.Processes {
		g.Status.Processes[i].Status = v1.ProcessNormal
	}
	if member >= 0 {
		m := g.Spec.Members[member]
		g.Status.Coordinator = &v1.Coordinator{Pod: m.Pod, Priority: m.Priority, Term: term, ElectedAt: metav1.NewMicroTime(
			LongAgo.Time)}
		g.Status.Processes[2-member].Status = v1.ProcessCoordinator
	}
	must.Succeed(t, e.Status().Update(t.Context(), g))
}

// CreateOperator creates the operator's Deployment in the test's namespace.
func (e *Env) CreateOperator(t *testing.T) {
	t.Helper()
	e.CreateOperatorIn(t, e.Namespace)
}

// CreateOperatorIn creates an operator's Deployment in a namespace.
func (e *Env) CreateOperatorIn(t *testing.T, namespace string) {
	t.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conclave-manager", Labels: clusteraccess.OperatorLabels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: clusteraccess.OperatorLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: clusteraccess.OperatorLabels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "manager", Image: "example.com/manager:2",
					Env: []corev1.EnvVar{{Name: "AGENT_IMAGE", Value: "example.com/agent:2"}},
				}}},
			},
		},
	}
	must.Succeed(t, e.Create(t.Context(), d))
	t.Cleanup(func() { // Other tests need a cluster without an operator.
		expect.Succeed(t, e.Delete(context.WithoutCancel(t.Context()), d))
	})
}
