package controllers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// expectPresentList checks that the first list of three members is in force, with its coordinator.
func (e *env) expectPresentList() {
	e.t.Helper()
	status, version := e.group("ledger").Status, e.document("ledger").Group.Version
	if list := status.Protocol.MemberList; list.Version != 1 || len(list.Members) != 3 || version != 1 {
		e.t.Fatalf("got list %+v and document version %d, want those before the change", list, version)
	}
	if status.Coordinator == nil || status.Coordinator.Pod != "ledger-2" {
		e.t.Fatalf("got coordinator %+v, want ledger-2", status.Coordinator)
	}
}

// Three members are added whose pods don't exist. The list waits for a majority, also after a
// restart of the operator, whether or not that reaches the agents.
func TestListWaitsForItsMembers(t *testing.T) {
	need.Complete(t)
	t.Parallel()
	e := newEnv(t)
	first := e.startOperator()
	e.createSettledGroup(first)
	members := []string{"ledger-0", "ledger-1", "ledger-2", "ledger-3", "ledger-4", "ledger-5"}
	e.edit("ledger", func(group *v1.ElectionGroup) {
		for i, pod := range members[3:] {
			group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(i + 1)})
		}
	})
	const want = "3 of 6 wanted members are connected, and a coordinator needs 4, so the present list remains: " +
		"make sure that ledger-3, ledger-4 and ledger-5 run, or correct spec.members"
	for _, of := range []v1.ConditionType{v1.ConditionReady, v1.ConditionProgressing, v1.ConditionDegraded} {
		if c := e.awaitCondition("ledger", of, v1.ReasonWaitingForMembers); c.Message != want {
			t.Errorf("%s: got message %q, want %q", of, c.Message, want)
		}
	}
	e.awaitQuiet(first)
	e.expectPresentList()
	if !meta.IsStatusConditionTrue(e.group("ledger").Status.Conditions, string(v1.ConditionAvailable)) {
		t.Error("got Available False, want True: the coordinator remains")
	}

	first.stop()
	for _, pod := range members[:3] {
		must.Succeed(t, e.agents[pod].Stop())
	}
	second := e.startOperator()
	e.awaitCondition("ledger", v1.ConditionAgentsConnected, v1.ReasonUnreachable)
	e.awaitQuiet(second)
	e.expectPresentList()
	for _, pod := range members[:3] {
		must.Succeed(t, e.agents[pod].Run(t.Context()))
	}
	e.eventually("the operator is connected to the present members", func() bool {
		c := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionReady))
		return c.Message == want
	})
	e.awaitQuiet(second)
	e.expectPresentList()

	e.pod("ledger-3", "ledger")
	e.awaitAdopted("ledger", 2, members[:4]...)
	e.awaitList("ledger", 2, members...)
	if c := e.group("ledger").Status.Coordinator; c == nil || c.Pod != "ledger-2" {
		t.Errorf("got coordinator %+v, want ledger-2", c)
	}
	e.awaitQuiet(second)
	if c := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionReady)); c.Reason == string(v1.ReasonWaitingForMembers) {
		t.Errorf("got condition %+v, want another reason", c)
	}
}

// A pod that no list has yet is connected, because spec.members selects it: its record is how
// its agent learns of the group. So a list never waits for what only its publication would bring.
func TestPodOfWaitingListIsRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.startOperator()
	e.createSettledGroup(o)
	e.selectedPod("ledger-3", "", func(*corev1.Pod) {})
	e.edit("ledger", func(group *v1.ElectionGroup) {
		for i, pod := range []string{"ledger-3", "ledger-4", "ledger-5"} {
			group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: pod, Priority: int32(i + 1)})
		}
	})
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonWaitingForMembers)
	e.awaitRecord("ledger-3", "ledger")
	e.expectPresentList()
}
