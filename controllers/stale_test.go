package controllers_test

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
		report, _ := e.agents[pod].Report("ledger")
		expect.Equalf(t, report.UID, uid, "UID of the group of %s", pod)
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
