package controllers_test

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// witness creates a pod of the operator, with a fake agent for the namespace. The operator runs in the same one.
func (e *env) witness(name, node string) *fakeagent.Agent {
	e.t.Helper()
	pod := e.podWithoutAgent(name, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{v1.LabelAgent: v1.AgentEnabled}
		pod.Spec.NodeName = node
	})
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must.Succeed(e.t, e.client.Status().Update(e.t.Context(), pod))
	return e.startAgent(name, "")
}

// TestManagedWitness: two members get a witness on another node, which gets documents, is connected for its state
// directory to be in the list, and is no pod of the group otherwise. After the group, the operator disconnects.
func TestManagedWitness(t *testing.T) {
	e := newEnv(t)
	e.startOperator()
	near, far := e.witness("conclave-witness-0", "n1"), e.witness("conclave-witness-1", "n3")
	for pod, node := range map[string]string{"a": "n1", "b": "n2"} {
		e.podWith(pod, []string{"ledger"}, func(pod *corev1.Pod) { pod.Spec.NodeName = node })
	}
	e.createGroup("ledger", func(g *v1.ElectionGroup) { g.Spec.Witness = v1.WitnessManaged }, "a", "b")
	e.awaitAdopted("ledger", 0, "a", "b", "conclave-witness-1")
	e.eventually("the list has the state directory of the witness", func() bool {
		list := e.group("ledger").Status.Protocol.MemberList
		return list != nil && len(list.Members) == 3 && list.Members[2] == v1.Member{Pod: "conclave-witness-1"} &&
			list.Identities["conclave-witness-1"] != ""
	})
	e.elect("ledger", "b", 7)
	e.awaitRole("b", "ledger", v1.RoleCoordinator)
	e.awaitRole("a", "ledger", v1.RoleFollower)
	expect.Equalf(t, e.role("conclave-witness-1", "ledger"), "", "role of the witness")
	expect.Equalf(t, near.Streams(), 0, "streams of a witness of no group")

	must.Succeed(t, e.client.Delete(t.Context(), e.group("ledger")))
	e.eventually("the witness has left the group", func() bool {
		calls := far.Calls()
		return len(calls) > 0 && calls[len(calls)-1].Method == http.MethodDelete
	})
	e.createGroup("other", nil, "a") // A reconcile of the namespace.
	e.eventually("the operator has disconnected", func() bool { return far.Streams() == 0 })
}
