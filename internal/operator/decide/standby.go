package decide

import (
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// A replica that isn't the leader is a standby. It is connected to the agents, too, and its cache is up to date, but it
// leaves the writes to the leader. There is one exception: if the leader hasn't written the result of an election, or
// the loss of the coordinator, after LeaderGrace, the standby does, with all that follows from it. So Services follow
// the coordinator also between the crash of the leader and the end of its Lease, for example when the leader and a
// coordinator were on the same node.
//
// If the leader is only slow, both write. That does no harm: see package controllers. It can't go on, either: in each
// term, a standby writes at most one election, one loss, and that the loss was wrong. And terms only grow.

// Standby is what only a standby remembers.
type Standby struct {
	// BehindSince is since when the status has been behind the agents' reports.
	BehindSince time.Time
	// Unfinished means that not all of the last actions could be applied.
	Unfinished bool
	// LostTerm is the last term of which the standby wrote that it lost its coordinator, and FoundTerm the last one of
	// which it wrote afterwards that the coordinator was not lost.
	LostTerm, FoundTerm int64
}

// leaderIsLate reports whether the status hasn't had what agents report for LeaderGrace.
func (s *step) leaderIsLate() bool {
	if s.Standby.Unfinished {
		return true
	}
	behind := false
	for name := range s.Agents {
		if report := s.Report(name); report != nil {
			behind = behind || s.Standby.isBehind(&s.Group.Status, report)
		}
	}
	if !behind {
		s.Standby.BehindSince = time.Time{}
		return false
	}
	if s.Standby.BehindSince.IsZero() {
		s.Standby.BehindSince = s.Now
	}
	return s.reached(s.Standby.BehindSince.Add(s.LeaderGrace))
}

// isBehind reports whether an agent reports a newer term than the status has, or that the coordinator in the status has
// been lost, or that it hasn't. That isn't sufficient: see leaderMissesChange.
func (b *Standby) isBehind(status *v1.ElectionGroupStatus, report *control.Report) bool {
	term := int64(min(report.Term, memberlist.MaxTerm+1)) //nolint:gosec // It is bounded.
	if c := status.Coordinator; c != nil && report.Coordinator == "" && term >= c.Term && c.Term > b.LostTerm {
		return true
	}
	return term > status.Term || status.Coordinator == nil && report.Coordinator != "" && b.mayFind(term)
}

// mayFind reports whether the standby wrote the loss of the coordinator in a term, and hasn't written that this was
// wrong.
func (b *Standby) mayFind(term int64) bool { return term == b.LostTerm && term > b.FoundTerm }

// leaderMissesChange reports whether the status that follows from the facts has a coordinator in a newer term, or none
// anymore. A single agent that reports that isn't sufficient, nor are agents that the standby can't reach: see
// groupstatus.
func (s *step) leaderMissesChange(result *groupstatus.Result) bool {
	was, next := &s.Group.Status, &result.Status
	switch {
	case next.Coordinator == nil:
		return was.Coordinator != nil && was.Coordinator.Term > s.Standby.LostTerm
	case was.Coordinator == nil && s.Standby.mayFind(next.Coordinator.Term):
		return true
	}
	return next.Term > was.Term
}

// finish repeats what failed after the standby had written the status. It doesn't write the status again: a leader that
// hears other agents may have written it since.
func (s *step) finish(plan *membership.Plan, result *groupstatus.Result) {
	// A standby doesn't notice each time when a majority is connected again.
	s.Standby.BehindSince, s.MajorityLostAt = time.Time{}, time.Time{}
	if s.Standby.Unfinished && facts.SameTenure(s.Group.Status.Coordinator, result.Status.Coordinator) {
		s.route(plan, result)
	}
	s.Standby.Unfinished, s.WakeAt = false, time.Time{}
}

// applied returns the memory of a standby after it has written a status.
func (b Standby) applied(was, is *v1.Coordinator) Standby {
	switch {
	case was != nil && is == nil:
		b.LostTerm = was.Term
	case was == nil && is != nil && is.Term == b.LostTerm:
		b.FoundTerm = is.Term
	}
	return b
}
