package controllers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

func on(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

// node makes a node that is cordoned or not; nodes are in no namespace.
func (s *stage) node(name string) string {
	s.t.Helper()
	name += "-" + s.namespace
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.client.Create(s.t.Context(), node); err != nil {
		s.t.Fatal(err)
	}
	return name
}

func (s *stage) cordon(name string, cordoned bool) {
	s.t.Helper()
	node := &corev1.Node{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		s.t.Fatal(err)
	}
	patch := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = cordoned
	if err := s.client.Patch(s.t.Context(), node, patch); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) awaitWithheld(agent *fakeagent.Agent, withheld bool) {
	s.t.Helper()
	s.await("the agent has been told whether to stand", func() bool {
		report, _ := agent.Report("ledger")
		return report.Excluded == withheld
	})
}

// The coordinator hands over before its node is drained, or its pod is gone.
func TestHandOver(t *testing.T) {
	s := newStage(t)
	s.operator()
	first, second := s.node("first"), s.node("second")
	s.podLike("p-0", []string{"ledger"}, on(first))
	one := s.podLike("p-1", []string{"ledger"}, on(second))
	two := s.podLike("p-2", []string{"ledger"}, on(second))
	s.declared("ledger", brief, "p-0", "p-1", "p-2")
	s.awaitAdopted("ledger", 1, "p-0", "p-1", "p-2")
	s.elect("ledger", "p-2", 7)
	s.awaitCoordinator("ledger", "p-2", 7)

	s.cordon(second, true)
	s.awaitWithheld(two, true)
	s.awaitWithheld(one, true)
	s.elect("ledger", "p-0", 8)
	s.awaitCoordinator("ledger", "p-0", 8)
	s.cordon(second, false)
	s.awaitWithheld(two, false)
	s.awaitWithheld(one, false)
	s.elect("ledger", "p-2", 9)
	s.awaitCoordinator("ledger", "p-2", 9)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "p-2"}}
	if err := s.client.Delete(t.Context(), pod, client.GracePeriodSeconds(300)); err != nil {
		t.Fatal(err)
	}
	s.awaitWithheld(two, true)
	if report, _ := one.Report("ledger"); report.Excluded {
		t.Error("the others stand")
	}

	two.CloseStreams() // It stands again while nobody listens.
	two.ChangeReport("ledger", func(r *control.Report) { r.Excluded, r.Eligible = false, true })
	s.awaitWithheld(two, true)
}
