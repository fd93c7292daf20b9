package controllers_test

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// An agent that reports the highest possible revision neither makes the operator write all
// the time nor prevents other agents from getting new documents.
func TestImpossibleRevisionIsIgnored(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	before := len(o.written())
	e.agents["ledger-0"].ChangeReport("ledger", func(r *control.Report) { r.Revision = math.MaxInt64 })
	e.awaitQuiet(o)
	expect.AtMostf(t, len(o.written()[before:]), 10, "writes")
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.eventually("ledger-1 has the new settings", func() bool {
		report, _ := e.agents["ledger-1"].Report("ledger")
		return report.Generation == 2 && report.Revision < math.MaxInt64/2
	})
}

// An agent that always reports the revision after the published one doesn't make the operator publish without end.
func TestNextRevisionIsIgnored(t *testing.T) {
	e := newEnv(t)
	e.createSettledGroup(e.startOperator())
	published := e.document("ledger").Revision
	for term := range 5 {
		next := e.document("ledger").Revision + 1
		e.agents["ledger-0"].ChangeReport("ledger", func(r *control.Report) { r.Revision = next })
		e.elect("ledger", "ledger-1", uint64(8+term))
		e.awaitCoordinator("ledger", "ledger-1", int64(8+term))
	}
	expect.Equalf(t, e.document("ledger").Revision, published, "revision published")
}

// A restore from a backup creates a group again: its generations restart, but its status
// has the observedGeneration of before.
func TestStatusWithNewerGenerationIsAccepted(t *testing.T) {
	e := newEnv(t)
	for _, pod := range []string{"p-0", "p-1", "p-2"} {
		e.pod(pod, "ledger")
	}
	group := e.createGroup("ledger", withShortWaits, "p-0", "p-1", "p-2")
	group.Status.ObservedGeneration = 7
	must.Succeed(t, e.client.Status().Update(t.Context(), group))
	e.startOperator()
	e.awaitAdopted("ledger", 0, "p-0", "p-1", "p-2")
}

// docs/adr/0009: a group that is created again with entirely other members begins after
// the agents of the earlier one have left. Nothing else prevents two coordinators.
func TestGroupWithOtherMembersWaitsForEarlierGroup(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	old := e.group("ledger")
	latest := time.Now().Add(time.Hour).UnixMilli() // The clock of an earlier operator was ahead.
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		agent := e.agents[pod]
		agent.ChangeReport("ledger", func(r *control.Report) { r.Revision = latest })
		agent.Refuse(func(call fakeagent.Call) int {
			if call.Method == http.MethodDelete {
				return http.StatusServiceUnavailable // The agent is still handing over.
			}
			return 0
		})
	}
	for _, pod := range []string{"x-0", "x-1", "x-2"} {
		e.pod(pod, "ledger")
	}
	must.Succeed(t, e.client.Delete(t.Context(), old))
	e.createGroup("ledger", withShortWaits, "x-0", "x-1", "x-2")
	e.eventually("the status names the agents in the earlier group", func() bool {
		ready := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionReady))
		return ready != nil && ready.Reason == string(v1.ReasonEarlierGroup) &&
			strings.HasPrefix(ready.Message, "The agents of ledger-0, ledger-1 and ledger-2 have not left")
	})
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		e.eventually(pod+" has the command to leave", func() bool {
			return slices.ContainsFunc(e.agents[pod].Calls(),
				func(call fakeagent.Call) bool { return call.Method == http.MethodDelete })
		})
	}
	e.awaitQuiet(o)
	expect.Equalf(t, e.inGroup("x-0", "ledger"), false,
		"the new group has begun while the earlier one may have a coordinator")
	e.agents["ledger-0"].Leave("ledger")
	e.agents["ledger-1"].Leave("ledger")
	e.eventually("the status names the last agent", func() bool {
		ready := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionReady))
		return strings.HasPrefix(ready.Message, "The agent of ledger-2 has not left")
	})
	if err := e.agents["ledger-2"].Stop(); err != nil { // The group doesn't wait for an agent that isn't connected.
		t.Fatal(err)
	}
	e.awaitAdopted("ledger", 0, "x-0", "x-1", "x-2")
	expect.AtLeastf(t, e.document("ledger").Revision, latest+1, "revision, above that of the earlier group")
}

// An agent can join the groups that its pod named when it was created. A group that the
// annotation names since then can't use the pod.
func TestPodThatNamesGroupAfterCreationIsNoMember(t *testing.T) {
	e, o := newOperatedEnv(t)
	for _, pod := range []string{"p-0", "p-1", "p-2"} {
		e.podWith(pod, []string{"ledger"}, withApp("ledger"))
	}
	e.pod("other", "audit")
	for _, name := range []string{"p-0", "p-1", "p-2"} {
		pod := &corev1.Pod{}
		must.Succeed(t, e.client.Get(t.Context(), e.key(name), pod))
		pod.Annotations[v1.AnnotationGroups] = "ledger,audit"
		must.Succeed(t, e.client.Update(t.Context(), pod))
	}
	e.createGroup("audit", func(group *v1.ElectionGroup) {
		group.Spec.Selector = &v1.PodSelector{MatchLabels: map[string]v1.LabelValue{"app": "ledger"}}
		group.Spec.PriorityFrom = &v1.PriorityFrom{Ordinal: v1.HighestFirst}
	})
	e.eventually("audit has been reconciled", func() bool { return e.group("audit").Status.ObservedGeneration == 1 })
	e.awaitQuiet(o)
	if list := e.group("audit").Status.Protocol.MemberList; list != nil {
		t.Errorf("got members %+v, want none: their agents can't join", list.Members)
	}
	connected := meta.FindStatusCondition(e.group("audit").Status.Conditions, string(v1.ConditionAgentsConnected))
	if connected.Reason != string(v1.ReasonNoAgent) ||
		!strings.Contains(connected.Message, "p-0, p-1 and p-2 run with an agent that is not part") {
		t.Errorf("got %+v, want reason NoAgent and a message that names the pods", connected)
	}
}

// A member that claims to be the coordinator of a newer term moves neither the status nor
// the Service, and a later election of the others counts.
func TestMinorityDoesNotMoveTheService(t *testing.T) {
	need.Complete(t)
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	e.agents["ledger-0"].ChangeReport("ledger", func(r *control.Report) { r.Coordinator, r.Term = "ledger-0", 507 })
	e.eventually("the operator has the report", func() bool {
		available := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionAvailable))
		return available.Reason == string(v1.ReasonCoordinatorsDiffer) &&
			strings.Contains(available.Message, "ledger-0 reports coordinator ledger-0 in term 507")
	})
	e.awaitQuiet(o)
	if status := e.group("ledger").Status; status.Coordinator == nil ||
		status.Coordinator.Pod != "ledger-2" || status.Term != 7 {
		t.Errorf("got coordinator %+v and term %d, want ledger-2 and 7", status.Coordinator, status.Term)
	}
	expect.Equalf(t, e.role("ledger-0", "ledger"), v1.RoleFollower, "role of ledger-0")
	e.deletePod("ledger-0")
	e.electAndAwait("ledger", "ledger-1", 8)
}

// A member that claims to use a newer list than the operator knows blocks nothing.
func TestMinorityWithNewerListIsIgnored(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	e.agents["ledger-0"].ChangeReport("ledger", func(r *control.Report) { r.Version++ })
	e.eventually("the status names the agent", func() bool {
		available := meta.FindStatusCondition(e.group("ledger").Status.Conditions, string(v1.ConditionAvailable))
		return available.Reason == string(v1.ReasonListsDiffer) &&
			strings.HasPrefix(available.Message, "ledger-0 reports a newer member list than version ")
	})
	e.awaitCoordinator("ledger", "ledger-2", 7)
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.eventually("ledger-1 has the new settings", func() bool {
		report, _ := e.agents["ledger-1"].Report("ledger")
		return report.Generation == 2
	})
	e.awaitCoordinator("ledger", "ledger-2", 7)
}

// spec.members may name any pod of the namespace. One that hasn't opted in gets no label:
// other controllers may select by it.
func TestPodThatHasNotOptedInGetsNoLabel(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.podWithoutAgent("bystander", func(*corev1.Pod) {})
	e.pod("p-0", "ledger")
	e.pod("p-1", "ledger")
	e.createGroup("ledger", withShortWaits, "bystander", "p-0", "p-1")
	e.awaitAdopted("ledger", 0, "p-0", "p-1")
	e.elect("ledger", "p-1", 7)
	e.awaitRole("p-1", "ledger", v1.RoleCoordinator)
	e.awaitRole("p-0", "ledger", v1.RoleFollower)
	e.awaitQuiet(o)
	expect.Equalf(t, e.role("bystander", "ledger"), "", "role of a pod without an agent")
}
