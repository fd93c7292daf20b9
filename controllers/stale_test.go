package controllers_test

import (
	"net/http"
	"slices"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// An operator that doesn't see what becomes of a group goes on, while another one
// acts. What the first one believes must not get anywhere.
func TestStaleCacheDoesNoHarm(t *testing.T) {
	s := newStage(t)
	first := s.operator()
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range append(pods, "p-3") {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", brief, pods...)
	s.awaitAdopted("ledger", 1, pods...)
	s.elect("ledger", "p-2", 7)
	s.awaitCoordinator("ledger", "p-2", 7)
	s.awaitQuiet(first)

	thaw, before := first.freeze("electiongroups"), len(first.written())
	s.operator()
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	s.await("the agents have the new settings", func() bool {
		report, _ := s.agents["p-0"].Report("ledger")
		return report.Generation == 2
	})
	s.elect("ledger", "p-1", 8)
	s.awaitCoordinator("ledger", "p-1", 8)
	s.edit("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: "p-3", Priority: 40})
	})
	s.awaitList("ledger", 2, "p-0", "p-1", "p-2", "p-3")
	s.awaitAdopted("ledger", 2, "p-0", "p-1", "p-2", "p-3")
	s.elect("ledger", "p-3", 9)
	s.awaitCoordinator("ledger", "p-3", 9)
	s.awaitRole("p-3", "ledger", v1.RoleCoordinator)
	if writes := kinds(first.written()[before:]); slices.Contains(writes, "PUT configmaps") || slices.Contains(writes, "POST configmaps") {
		t.Errorf("it has published what isn't there any more: %v", writes)
	}
	thaw()
	s.awaitQuiet(first)
	if got := s.document("ledger"); got.Generation != 3 || got.Group.Version != 2 || got.Group.Algorithm != "Bully" {
		t.Errorf("this isn't the group as it is now: %+v", got)
	}
	s.elect("ledger", "p-2", 10)
	s.awaitCoordinator("ledger", "p-2", 10)
}

// A pod that came before the list is there for the API server, and not yet for the
// operator. It may have begun with the list before, so its absence doesn't count.
func TestPodThatIsNotSeenYetHasNotDeparted(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range pods {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", brief, pods...)
	s.awaitAdopted("ledger", 1, pods...)
	s.elect("ledger", "p-0", 7)
	s.awaitCoordinator("ledger", "p-0", 7)
	s.deletePod("p-2")
	s.awaitCondition("ledger", v1.AgentsConnected, v1.ReasonPodsMissing)
	s.awaitQuiet(a)
	if asks := a.asks("/pods/p-2"); asks > 0 {
		t.Errorf("while the list has settled, the cache is good enough; it asked %d times", asks)
	}

	thaw := a.freeze("pods")
	s.pod("p-2", "ledger")
	// One of three adopts the next list, and isn't enough.
	s.agents["p-1"].Refuse(func(fakeagent.Call) int { return http.StatusServiceUnavailable })
	s.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Members[0].Priority = 40 })
	s.awaitAdopted("ledger", 2, "p-0")
	s.await("the operator has looked for it, and again", func() bool {
		return a.asks("/pods/p-2") >= 2 || s.group("ledger").Status.MemberList.State == v1.ListSettled
	})
	if list := s.group("ledger").Status.MemberList; list.State != v1.ListAdopting || len(list.Departed) > 0 {
		t.Errorf("p-2 is there and must be asked, and the list is %+v", list)
	}
	thaw()
	s.awaitAdopted("ledger", 2, "p-2")
	s.await("the list has settled", func() bool { return s.group("ledger").Status.MemberList.State == v1.ListSettled })
	if departed := s.group("ledger").Status.MemberList.Departed; len(departed) > 0 {
		t.Errorf("%v are said to have departed", departed)
	}
}
