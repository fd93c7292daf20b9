package groupstatus

import (
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// TestSummaries tests the conditions that users and their tools wait for.
func TestSummaries(t *testing.T) {
	const (
		agree   = "True Elected: The agents agree on the coordinator"
		settled = "False Settled: The agents use the newest member list and settings"
		allUp   = "False Healthy: All members are up"
	)
	for name, c := range map[string]struct {
		members                          int
		change                           func(*harness)
		available, progressing, degraded string
	}{
		"a healthy group":   {3, func(*harness) {}, agree, settled, allUp},
		"a single member":   {1, func(*harness) {}, agree, settled, "False NoFailover: The group is healthy, but no other member can take over: there is a single member"},
		"one member down":   {3, func(s *harness) { s.crash("a") }, agree, settled, "True MembersDown: 1 of 3 members is down: a"},
		"the election runs": {3, func(s *harness) { s.crash("c"); s.reportCoordinator("", "a", "b") }, "False Electing: There is no coordinator. An election is in progress", settled, "True MembersDown: 1 of 3 members is down: c"},
		"two coordinators in Available mode": {
			4, func(s *harness) {
				s.Group.Spec.Safety.Mode = v1.Available
				s.reportCoordinator("a", "a", "b")
				s.reportCoordinator("d", "c", "d")
				s.evaluate()
				s.setTime(time.Minute)
			}, "False CoordinatorsDiffer: a and b report coordinator a in term 130896001; c and d report coordinator d in term 130896001", settled, allUp,
		},
		"new settings": {
			3, func(s *harness) { s.Group.Generation = 2; s.report("a").Generation = 2 },
			agree, "True SettingsDiffer: b and c have not applied generation 2 of the spec yet", allUp,
		},
		"a new member list": {
			3, func(s *harness) {
				s.List = &v1.MemberList{
					Version: 2, State: v1.ListAdopting, Members: s.List.Members, Previous: &v1.PreviousList{Members: s.List.Members},
				}
			},
			agree, "True Adopting: The agents are adopting version 2 of the member list", allUp,
		},
		"a spec that cannot be applied": {
			3, func(s *harness) {
				s.Problem = &membership.Problem{Reason: v1.ReasonTooManyMembers, Message: "too many"}
			},
			agree, "False TooManyMembers: too many", "True TooManyMembers: too many",
		},
		"no list and no pods": {
			3, func(s *harness) {
				s.List, s.Agents = nil, nil
				s.Problem = &membership.Problem{Reason: v1.ReasonNoMembers, Message: "no members"}
			},
			"False NoMembers: no members", "False NoMembers: no members", "True NoMembers: no members",
		},
		"a list that cannot be written": {
			3, func(s *harness) { s.PublishError = "exceeded quota" }, agree,
			"False WriteFailed: Agents keep their current settings because a write failed: exceeded quota",
			"True WriteFailed: Agents keep their current settings because a write failed: exceeded quota",
		},
		"a Service that cannot be written": {
			3, func(s *harness) { s.RoutingError = "denied" }, agree, settled,
			"True WriteFailed: Traffic may go to the wrong pod because a write failed: denied",
		},
		"no agent is connected": {
			3, func(s *harness) { s.disconnect("a", "b", "c") },
			"Unknown NoReports: The operator cannot reach the agents of a, b and c: see status.processes", settled, "True MembersDown: 3 of 3 members are down: a, b and c",
		},
		"after a restart of the operator": {3, func(s *harness) { s.evaluate(); s.restartOperator() }, agree, settled, allUp},
		"after a restart of the operator, one member down": {
			3, func(s *harness) { s.crash("a"); s.evaluate(); s.restartOperator() }, agree, settled, "True MembersDown: 1 of 3 members is down: a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(c.members)
			c.change(s)
			r := s.evaluate()
			expect(t, "Available", formatCondition(&r.Status, v1.ConditionAvailable), c.available)
			expect(t, "Progressing", formatCondition(&r.Status, v1.ConditionProgressing), c.progressing)
			expect(t, "Degraded", formatCondition(&r.Status, v1.ConditionDegraded), c.degraded)
		})
	}
}

var serviceConflict = &membership.Problem{Reason: v1.ReasonServiceConflict, Message: "Service front has another owner"}

// TestReadyHasTheMostImportantProblem resolves one problem after the other.
func TestReadyHasTheMostImportantProblem(t *testing.T) {
	s := newHarness(3)
	s.Problem = &membership.Problem{Reason: v1.ReasonInvalidMembers, Message: "invalid"}
	s.PublishError, s.RoutingError = "write it", "write another"
	s.ServiceProblem = serviceConflict
	s.List = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: s.List.Members[:1:1], Previous: &v1.PreviousList{Members: s.List.Members},
	}
	s.List.Members = append(s.List.Members, v1.Member{Pod: "x", Priority: 7})
	s.report("b").Digest = "other"
	s.disconnect("a", "b", "c")
	for _, step := range []struct {
		want    v1.Reason
		resolve func()
	}{
		{v1.ReasonInvalidMembers, func() { s.Problem = nil }},
		{v1.ReasonWriteFailed, func() { s.PublishError = "" }},
		{v1.ReasonNoReports, func() {
			for name, agent := range s.Agents {
				s.Agents[name] = AgentState{Connected: true, Report: agent.Report}
			}
			s.reportCoordinator("", s.names...)
		}},
		{v1.ReasonListsDiffer, func() { s.report("b").Digest = "d" }},
		{v1.ReasonNoMajority, func() { s.elect("a"); s.Group.Generation = 2 }},
		{v1.ReasonSettingsDiffer, func() { s.Group.Generation = 1 }},
		{v1.ReasonAdopting, func() { s.List.State = v1.ListSettled; s.report("a").Version = 2 }},
		{v1.ReasonServiceConflict, func() { s.ServiceProblem = nil }},
		{v1.ReasonWriteFailed, func() { s.RoutingError = "" }},
		{v1.ReasonMembersDown, func() { s.List.Members = s.List.Members[:1] }},
		{v1.ReasonNoFailover, func() {
			s.List.Members = s.Group.Spec.Members
			s.report("b").Version, s.report("c").Version = 2, 2
		}},
		{v1.ReasonHealthy, nil},
	} {
		r := s.evaluate()
		if got := r.Status.Conditions[0]; got.Reason != string(step.want) {
			t.Fatalf("got reason %s, want %s: %s", got.Reason, step.want, got.Message)
		}
		if step.resolve != nil {
			step.resolve()
		}
	}
}
