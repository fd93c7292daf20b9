package controllers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// An agent that reports a thousand changes a second neither makes the operator write all
// the time nor delays the status of other groups.
func TestFloodOfReportsDoesNotDelayOtherGroups(t *testing.T) {
	need.Complete(t)
	e := newEnv(t)
	o := e.startOperator(func(o *operator) { o.debounce = -1 })
	e.createSettledGroup(o)
	others := []string{"one", "two", "three", "four"}
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range pods {
		e.pod(pod, others...)
	}
	for _, group := range others {
		e.createGroup(group, withShortWaits, pods...)
		e.awaitAdopted(group, 1, pods...)
	}
	e.awaitQuiet(o)

	stop, stopped := make(chan struct{}), make(chan struct{})
	flooding := e.agents["ledger-0"]
	go func() {
		defer close(stopped)
		for {
			flooding.ChangeReport("ledger", func(r *control.Report) {
				r.Term++
				r.Coordinator = []string{"ledger-0", "ledger-1"}[r.Term%2]
			})
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	before := 0
	count := func(group string) int {
		return len(slices.DeleteFunc(o.written()[before:], func(write string) bool {
			return !strings.HasSuffix(write, "/electiongroups/"+group+"/status")
		}))
	}
	// By then the agent has used its burst.
	want := count("ledger") + 20
	e.eventually("the status has been written twenty times", func() bool {
		report, _ := flooding.Report("ledger")
		return count("ledger") >= want && report.Term > 500
	})
	began := time.Now()
	before = len(o.written())
	for term := range int64(10) {
		for i, group := range others {
			e.elect(group, pods[(int(term)+i)%3], uint64(term+7))
			e.awaitCoordinator(group, pods[(int(term)+i)%3], term+7)
			e.awaitRole(pods[(int(term)+i)%3], group, v1.RoleCoordinator)
		}
	}
	// The agent alone changes no coordinator. A standby has a limit of its own, and may write what waits.
	most := 2 * (2 + int(time.Since(began).Seconds()))
	expect.AtMostf(t, count("ledger"), most, "writes of ledger's status")
	close(stop)
	<-stopped
	e.awaitQuiet(o)
	for _, group := range others {
		expect.AtMostf(t, count(group), 20, "%s: writes of the status for ten elections", group)
	}
}
