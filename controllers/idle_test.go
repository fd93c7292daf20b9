package controllers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// createSettledGroup creates a group of three with a coordinator, and waits until the operator has written everything.
func (e *env) createSettledGroup(o *operator) {
	e.t.Helper()
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	e.startLedger(withService, pods...)
	e.electAndAwait("ledger", "ledger-2", 7)
	e.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	e.awaitQuiet(o)
}

// kinds returns the methods and resources of writes.
func kinds(writes []string) []string {
	var found []string
	for _, write := range writes {
		method, path, _ := strings.Cut(write, " ")
		parts := strings.Split(path, "/")
		for i, part := range parts {
			if part == "NAMESPACE" {
				kind := parts[i+1]
				if len(parts) > i+3 {
					kind += "/" + parts[i+3]
				}
				found = append(found, method+" "+kind)
			}
		}
	}
	return sorted(found)
}

func TestNoWritesWithoutChanges(t *testing.T) {
	e := newEnv(t)
	first := e.startOperator()
	e.createSettledGroup(first)
	before := len(first.written())
	reconciles := func(o *operator) float64 { return value(t, o.metrics, "conclave_operator_reconciles_total") }
	count := reconciles(first)
	for _, agent := range e.agents {
		agent.ChangeReport("ledger", func(r *control.Report) { r.ChangedAt = time.Now() })
	}
	e.eventually("the group has been reconciled again", func() bool { return reconciles(first) > count })
	e.awaitQuiet(first)
	expect.Lenf(t, first.written()[before:], 0, "writes without a change")
	first.stop()
	second := e.startOperator()
	e.eventually("the second operator has reconciled the group with all agents", func() bool {
		return reconciles(second) > 0 && value(t, second.metrics, "conclave_operator_agents_connected") == 3
	})
	e.awaitQuiet(second)
	expect.Lenf(t, second.written(), 0, "writes of the second operator without a change")
}

func TestWritesOfAnElection(t *testing.T) {
	e, o := newOperatedEnv(t)
	e.createSettledGroup(o)
	before := len(o.written())
	for _, agent := range e.agents {
		agent.ChangeReport("ledger", func(r *control.Report) {
			r.Ended = &control.Ending{Coordinator: "ledger-2", Term: 7, Cause: control.EndCrash, GapMicros: new(int64(5000))}
		})
	}
	e.electAndAwait("ledger", "ledger-1", 8)
	e.awaitRole("ledger-2", "ledger", v1.RoleFollower)
	e.awaitQuiet(o)
	want := []string{"PATCH endpointslices", "PATCH pods", "PATCH pods", "POST events", "PUT electiongroups/status"}
	expect.EqualSlicesf(t, kinds(o.written()[before:]), want, "writes of an election")
	expect.Equalf(t, value(t, o.metrics, "conclave_operator_elections_total"), 2, "elections in the metrics")
	expect.Equalf(t, value(t, o.metrics, "conclave_operator_failover_seconds"), 1, "failovers in the metrics")
	expect.AtLeastf(t, value(t, o.metrics, "conclave_operator_status_lag_seconds"), 1, "statuses with a measured lag")

	// A pod that has been deleted needs no label.
	before = len(o.written())
	e.deletePod("ledger-1")
	e.electAndAwait("ledger", "ledger-2", 9)
	e.awaitRole("ledger-2", "ledger", v1.RoleCoordinator)
	e.awaitQuiet(o)
	got := kinds(o.written()[before:])
	if labels := len(got) -
		len(slices.DeleteFunc(slices.Clone(got), func(write string) bool { return write == "PATCH pods" })); labels != 1 {
		t.Errorf("the coordinator's pod was deleted: got %d labels written, want 1: %v", labels, got)
	}
}

// value returns the sum of a metric over its labels; for a histogram, the number of observations.
func value(t testing.TB, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must.Succeed(t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
