package groupstatus

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// A group is stalled only by what neither time nor a rollout resolves, and has the condition only then.
func TestStalled(t *testing.T) {
	problem := func(reason v1.Reason) func(*harness) {
		return func(s *harness) { s.Problem = &membership.Problem{Reason: reason, Message: "why"} }
	}
	for name, c := range map[string]struct {
		change func(*harness)
		want   v1.Reason
	}{
		"healthy":                             {func(*harness) {}, ""},
		"a member is down":                    {func(s *harness) { s.crash("a") }, ""},
		"a status that is behind":             {problem(v1.ReasonStatusBehind), v1.ReasonStatusBehind},
		"too many members":                    {problem(v1.ReasonTooManyMembers), v1.ReasonTooManyMembers},
		"no pods yet":                         {problem(v1.ReasonNoMembers), ""},
		"invalid pods of a group with a list": {problem(v1.ReasonInvalidMembers), ""},
		"invalid pods of a new group":         {func(s *harness) { problem(v1.ReasonInvalidMembers)(s); s.List = nil }, v1.ReasonInvalidMembers},
		"a Service of another owner":          {func(s *harness) { s.ServiceProblem = serviceConflict }, v1.ReasonServiceConflict},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(3)
			c.change(s)
			status := s.evaluate().Status
			found := meta.FindStatusCondition(status.Conditions, string(v1.ConditionStalled))
			switch {
			case c.want == "" && found != nil:
				t.Errorf("got %+v, want none", found)
			case c.want != "" && (found == nil || found.Reason != string(c.want) || found.Status != "True" || found.Message == ""):
				t.Errorf("got %+v, want True with the reason %s", found, c.want)
			}
			s.Problem, s.ServiceProblem = nil, nil
			s.Group.Status = status
			if found := meta.FindStatusCondition(s.evaluate().Status.Conditions, string(v1.ConditionStalled)); found != nil {
				t.Errorf("after it was resolved: got %+v, want none", found)
			}
		})
	}
}
