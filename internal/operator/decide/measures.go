package decide

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
)

// Gauges are the latest values of one group.
type Gauges struct {
	Vacant bool
	// Disagreeing: the agents disagree about anything, also while new settings propagate. Divided: they name different
	// coordinators.
	Disagreeing, Divided bool
	Behind               bool
	// Refused: the namespace has too many groups.
	Refused             bool
	Connected, Expected int
}

// gauges returns the gauges of a group.
func (s *step) gauges(result *groupstatus.Result) Gauges {
	now := Gauges{
		Refused:     s.GroupsMax > 0,
		Vacant:      result.Status.Coordinator == nil,
		Disagreeing: result.Disagreement != "",
		Divided:     result.Disagreement == v1.ReasonCoordinatorsDiffer,
	}
	if ready := meta.FindStatusCondition(result.Status.Conditions, string(v1.ConditionReady)); ready != nil {
		now.Behind = ready.Reason == string(v1.ReasonStatusBehind)
	}
	if list := result.Status.Protocol.MemberList; list != nil {
		now.Expected = len(list.Members)
		for _, m := range list.Members {
			if s.Agents[m.Pod].Connected {
				now.Connected++
			}
		}
	}
	return now
}

// Measures is what becomes visible in the status. A reconcile whose write failed is repeated, so it counts only after
// the status has been written.
type Measures struct {
	// Elected means that there is a new coordinator. Failover is the time without one before it, if that is known, and End
	// what ended the tenure before.
	Elected  bool
	Failover *time.Duration
	End      string
	// FirstChange and LastChange are of what agents have reported since the last step, and FirstChange is zero in the
	// first step.
	FirstChange, LastChange time.Time
}

// The kinds of ends of tenures.
const (
	EndFailure = "failure"
	EndPlanned = "planned"
	EndUnknown = "unknown"
)

// measure returns the measures of a status.
func (s *step) measure(result *groupstatus.Result) (m Measures) {
	was, is := s.Group.Status.Coordinator, result.Status.Coordinator
	if history := result.Status.History; s.Errors.Status == "" && is != nil && !facts.SameTenure(was, is) {
		m.Elected, m.End = true, endOfTenureBefore(history)
		gap, known := history[0].Gap()
		if isNew := len(history) > 1 && history[0].Number > history[1].Number; isNew && known {
			m.Failover = &gap
		}
	}
	for _, agent := range s.Agents {
		if agent.Report == nil || !agent.Report.ChangedAt.After(s.LatestChange) {
			continue
		}
		at := agent.Report.ChangedAt
		m.FirstChange = facts.Earliest(m.FirstChange, at)
		if at.After(m.LastChange) {
			m.LastChange = at
		}
	}
	if s.LatestChange.IsZero() {
		m.FirstChange = time.Time{}
	}
	return m
}

// endOfTenureBefore returns which kind of end the tenure before the newest one had.
func endOfTenureBefore(history []v1.Tenure) string {
	switch {
	case len(history) <= 1 || history[1].EndReason == v1.EndUnknown:
		return EndUnknown
	case history[1].EndedByFailure():
		return EndFailure
	}
	return EndPlanned
}
