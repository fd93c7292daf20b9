package controllers_test

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// An operator with a stale cache continues to run beside another one. None of its decisions takes effect.
func TestStaleCacheDoesNoHarm(t *testing.T) {
	e := newEnv(t)
	first := e.startOperator()
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range append(pods, "p-3") {
		e.pod(pod, "ledger")
	}
	e.createGroup("ledger", withShortWaits, pods...)
	e.awaitAdopted("ledger", 0, pods...)
	e.electAndAwait("ledger", "p-2", 7)
	e.awaitQuiet(first)

	resume := first.pauseWatch("electiongroups")
	e.startOperator()
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Algorithm = v1.Bully })
	e.eventually("the agents have the new settings", func() bool {
		report, _ := e.agents["p-0"].Report("ledger")
		return report.Generation == 2
	})
	e.electAndAwait("ledger", "p-1", 8)
	version := e.version("ledger")
	e.edit("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: "p-3", Priority: 40})
	})
	e.awaitAdopted("ledger", version, "p-0", "p-1", "p-2", "p-3")
	e.electAndAwait("ledger", "p-3", 9)
	e.awaitRole("p-3", "ledger", v1.RoleCoordinator)
	resume()
	e.awaitQuiet(first)
	if got := e.document("ledger"); got.Generation != 3 || len(got.Group.Members) != 4 || got.Group.Algorithm != "Bully" {
		t.Errorf("got document %+v, want generation 3, four members and algorithm Bully", got)
	}
	e.electAndAwait("ledger", "p-2", 10)
}

// Another operator has reconciled a group that was deleted and created again. An operator that
// still knows the former one doesn't publish it again, and doesn't delete what the new one owns.
func TestStaleCacheDoesNotRestoreDeletedGroup(t *testing.T) {
	e := newEnv(t)
	first := e.startOperator()
	e.createSettledGroup(first)
	resume, before := first.pauseWatch("electiongroups"), len(first.written())
	e.startOperator()
	must.Succeed(t, e.client.Delete(t.Context(), e.group("ledger")))
	e.createGroup("ledger", withService, "ledger-0", "ledger-1", "ledger-2")
	e.awaitAdopted("ledger", 0, "ledger-0", "ledger-1", "ledger-2")
	e.electAndAwait("ledger", "ledger-1", 8)
	e.awaitQuiet(first)
	uid := string(e.group("ledger").UID)
	for _, write := range kinds(first.written()[before:]) {
		if slices.Contains([]string{"DELETE services", "PATCH services", "DELETE endpointslices", "PATCH endpointslices"},
			write) {
			t.Errorf("got write %s of the operator that knows only the deleted group, want none", write)
		}
	}
	for _, pod := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		if report, _ := e.agents[pod].Report("ledger"); report.UID != uid {
			t.Errorf("got %s in the group with UID %s, want %s", pod, report.UID, uid)
		}
	}
	resume()
	e.awaitQuiet(first)
	expect.Equalf(t, e.document("ledger").UID, uid, "document of the group with UID")
}

// Another operator has moved the coordinator to another Service. An operator that knows only the
// former spec doesn't delete the new Service: its cluster IP would be lost.
func TestStaleCacheDoesNotDeleteService(t *testing.T) {
	e := newEnv(t)
	first := e.startOperator()
	e.createSettledGroup(first)
	resume, before := first.pauseWatch("electiongroups"), len(first.written())
	second := e.startOperator()
	e.edit("ledger", func(group *v1.ElectionGroup) { group.Spec.Service.Name = "ledger-other" })
	e.eventually("the new Service points at the coordinator",
		func() bool { return e.endpoint("ledger-other") == e.ip("ledger-2") })
	e.awaitQuiet(first)
	e.awaitQuiet(second)
	for _, write := range kinds(first.written()[before:]) {
		if strings.HasSuffix(write, "services") || strings.HasSuffix(write, "endpointslices") {
			t.Errorf("got write %s of the operator that knows only the former spec, want none", write)
		}
	}
	resume()
}
