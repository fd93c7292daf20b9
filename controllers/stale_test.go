package controllers_test

import (
	"net/http"
	"slices"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// An operator with a stale cache continues to run beside another one. None of its
// decisions takes effect.
func TestStaleCacheDoesNoHarm(t *testing.T) {
	e := newEnv(t)
	first := e.startOperator()
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range append(pods, "p-3") {
		e.pod(pod, "ledger")
	}
	e.createGroup("ledger", withShortWaits, pods...)
	e.awaitAdopted("ledger", 1, pods...)
	e.elect("ledger", "p-2", 7)
	e.awaitCoordinator("ledger", "p-2", 7)
	e.awaitQuiet(first)

	resume, before := first.pauseWatch("electiongroups"), len(first.written())
	e.startOperator()
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.eventually("the agents have the new settings", func() bool {
		report, _ := e.agents["p-0"].Report("ledger")
		return report.Generation == 2
	})
	e.elect("ledger", "p-1", 8)
	e.awaitCoordinator("ledger", "p-1", 8)
	e.edit("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: "p-3", Priority: 40})
	})
	e.awaitList("ledger", 2, "p-0", "p-1", "p-2", "p-3")
	e.awaitAdopted("ledger", 2, "p-0", "p-1", "p-2", "p-3")
	e.elect("ledger", "p-3", 9)
	e.awaitCoordinator("ledger", "p-3", 9)
	e.awaitRole("p-3", "ledger", v1.RoleCoordinator)
	if writes := kinds(first.written()[before:]); slices.Contains(writes, "PUT configmaps") || slices.Contains(writes, "POST configmaps") {
		t.Errorf("got writes %v of the stale operator, want none of a ConfigMap", writes)
	}
	resume()
	e.awaitQuiet(first)
	if got := e.document("ledger"); got.Generation != 3 || got.Group.Version != 2 || got.Group.Algorithm != "Bully" {
		t.Errorf("got document %+v, want generation 3, version 2 and algorithm Bully", got)
	}
	e.elect("ledger", "p-2", 10)
	e.awaitCoordinator("ledger", "p-2", 10)
}

// A pod was created before the new list, and isn't in the operator's cache yet. It may have
// begun with the previous list, so it doesn't count as departed.
func TestPodMissingFromCacheHasNotDeparted(t *testing.T) {
	e := newEnv(t)
	o := e.startOperator()
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range pods {
		e.pod(pod, "ledger")
	}
	e.createGroup("ledger", withShortWaits, pods...)
	e.awaitAdopted("ledger", 1, pods...)
	e.elect("ledger", "p-0", 7)
	e.awaitCoordinator("ledger", "p-0", 7)
	e.deletePod("p-2")
	e.awaitCondition("ledger", v1.ConditionAgentsConnected, v1.ReasonPodsMissing)
	e.awaitQuiet(o)
	if reads := o.countReads("/pods/p-2"); reads > 0 {
		t.Errorf("got %d reads of p-2 from the API server while the list is settled, want none", reads)
	}

	resume := o.pauseWatch("pods")
	e.pod("p-2", "ledger")
	// Only one of three adopts the next list: no majority.
	e.agents["p-1"].Refuse(func(fakeagent.Call) int { return http.StatusServiceUnavailable })
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members[0].Priority = 40 })
	e.awaitAdopted("ledger", 2, "p-0")
	e.eventually("the operator has read p-2 twice", func() bool {
		return o.countReads("/pods/p-2") >= 2 || e.group("ledger").Status.MemberList.State == v1.ListSettled
	})
	if list := e.group("ledger").Status.MemberList; list.State != v1.ListAdopting || len(list.Departed) > 0 {
		t.Errorf("got list %+v, want it adopting and without departed members", list)
	}
	resume()
	e.awaitAdopted("ledger", 2, "p-2")
	e.eventually("the list has settled", func() bool { return e.group("ledger").Status.MemberList.State == v1.ListSettled })
	if departed := e.group("ledger").Status.MemberList.Departed; len(departed) > 0 {
		t.Errorf("got departed members %v, want none", departed)
	}
}
