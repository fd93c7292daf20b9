package controllers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// settled is a group of three with its coordinator, of which all is written.
func (s *stage) settled(a *actor) {
	s.t.Helper()
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", withService, pods...)
	s.awaitAdopted("ledger", 1, pods...)
	s.elect("ledger", "ledger-2", 7)
	s.awaitCoordinator("ledger", "ledger-2", 7)
	s.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	s.awaitQuiet(a)
}

// kinds are the methods and the resources of what was written.
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

func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	s := newStage(t)
	first := s.operator()
	s.settled(first)
	before := len(first.written())
	looks := func(a *actor) float64 { return value(t, a.metrics, "conclave_operator_looks_total") }
	seen := looks(first)
	for _, agent := range s.agents {
		agent.ChangeReport("ledger", func(r *control.Report) { r.ChangedAt = time.Now() })
	}
	s.await("it has looked again", func() bool { return looks(first) > seen })
	s.awaitQuiet(first)
	if extra := first.written()[before:]; len(extra) != 0 {
		t.Errorf("nothing has changed, but this was written: %v", extra)
	}
	first.stop()
	second := s.operator()
	s.await("another operator has looked and hears all agents", func() bool {
		return looks(second) > 0 && value(t, second.metrics, "conclave_operator_agents_connected") == 3
	})
	s.awaitQuiet(second)
	if writes := second.written(); len(writes) != 0 {
		t.Errorf("all is as it was, but another operator wrote this: %v", writes)
	}
}

func TestWritesOfAnElection(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	before := len(a.written())
	s.elect("ledger", "ledger-1", 8)
	s.awaitCoordinator("ledger", "ledger-1", 8)
	s.awaitRole("ledger-2", "ledger", v1.RoleFollower)
	s.awaitQuiet(a)
	want := []string{"PATCH endpointslices", "PATCH pods", "PATCH pods", "POST events", "PUT electiongroups/status"}
	if got := kinds(a.written()[before:]); !slices.Equal(got, want) {
		t.Errorf("an election should have these writes:\n%v\nnot these:\n%v", want, got)
	}

	// Who is gone needs no label.
	before = len(a.written())
	s.deletePod("ledger-1")
	s.elect("ledger", "ledger-2", 9)
	s.awaitCoordinator("ledger", "ledger-2", 9)
	s.awaitRole("ledger-2", "ledger", v1.RoleCoordinator)
	s.awaitQuiet(a)
	got := kinds(a.written()[before:])
	if labels := len(got) - len(slices.DeleteFunc(slices.Clone(got), func(write string) bool { return write == "PATCH pods" })); labels != 1 {
		t.Errorf("when the coordinator's pod is gone, one pod is labelled, not %d: %v", labels, got)
	}
}

// value is the sum of a metric over its labels; for a histogram, how often it
// was observed.
func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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

func TestMetrics(t *testing.T) {
	s := newStage(t)
	a := s.operator()
	s.settled(a)
	s.elect("ledger", "ledger-1", 8)
	s.awaitCoordinator("ledger", "ledger-1", 8)
	s.awaitQuiet(a)
	for name, want := range map[string]float64{
		"conclave_operator_groups":                     1,
		"conclave_operator_groups_without_coordinator": 0,
		"conclave_operator_groups_disagreeing":         0,
		"conclave_operator_group_coordinator":          1,
		"conclave_operator_group_agreed":               1,
		"conclave_operator_group_coordinators_differ":  0,
		"conclave_operator_agents_connected":           3,
		"conclave_operator_agents_expected":            3,
		"conclave_operator_streams_connected":          3,
		"conclave_operator_elections_total":            2,
		"conclave_operator_failover_seconds":           1,
	} {
		if got := value(t, a.metrics, name); got != want {
			t.Errorf("%s is %v, and should be %v", name, got, want)
		}
	}
	if value(t, a.metrics, "conclave_operator_status_lag_seconds") == 0 {
		t.Error("the status followed twice, but its lag wasn't measured")
	}
	if err := s.client.Delete(t.Context(), s.group("ledger")); err != nil {
		t.Fatal(err)
	}
	s.await("the group's series have gone with it", func() bool {
		return value(t, a.metrics, "conclave_operator_groups") == 0 && value(t, a.metrics, "conclave_operator_agents_expected") == 0
	})
}
