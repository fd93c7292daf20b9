package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
)

// gauges returns the gauges of a group, whether or not its status can be written.
func (s *snapshot) gauges(result *groupstatus.Result) groupGauges {
	now := groupGauges{
		vacant:      result.Status.Coordinator == nil,
		disagreeing: result.Disagreement != "",
		divided:     result.Disagreement == v1.ReasonCoordinatorsDiffer,
	}
	if ready := meta.FindStatusCondition(result.Status.Conditions, string(v1.ConditionReady)); ready != nil {
		now.behind = ready.Reason == string(v1.ReasonStatusBehind)
	}
	if list := s.group.Status.Protocol.MemberList; list != nil {
		now.expected = len(list.Members)
		for _, m := range list.Members {
			now.connected += number(s.connections[m.Pod].Connected)
		}
	}
	if gaps := result.Status.Gaps; gaps != nil {
		now.gaps = *gaps
	}
	return now
}

// observe counts and measures what has become visible in the status. A reconcile whose write
// failed is repeated, so call it only after the status has been written.
func (r *Reconciler) observe(s *snapshot, before *v1.ElectionGroup, result *groupstatus.Result) {
	was, is := before.Status.Coordinator, result.Status.Coordinator
	if is != nil && !sameCoordinator(was, is) {
		r.metrics.update(s.key, func(g *groupMetrics) { g.elections++ })
		if lost, named := s.coordinatorLostAt(was), s.coordinatorNamedAt(is); before.Status.Term > 0 &&
			!lost.IsZero() && !named.IsZero() {
			r.metrics.failover.WithLabelValues(endOfTenureBefore(result.Status.History)).
				Observe(max(named.Sub(lost), 0).Seconds())
		}
		s.state.electedAt = s.now
	}
	switch {
	case is != nil:
		s.state.vacantSince = time.Time{}
	case s.state.vacantSince.IsZero():
		s.state.vacantSince = s.now
	}
	first, last := s.changes()
	if before != s.group && !first.IsZero() && !s.state.latestChange.IsZero() {
		r.metrics.lag.Observe(max(time.Since(first), 0).Seconds())
	}
	if last.After(s.state.latestChange) {
		s.state.latestChange = last
	}
}

// coordinatorLostAt returns when the operator first received a sign, since the last
// election, that the group has lost its coordinator.
func (s *snapshot) coordinatorLostAt(was *v1.Coordinator) time.Time {
	first := s.state.vacantSince
	consider := func(at time.Time) {
		if at.After(s.state.electedAt) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, report := range s.reports {
		consider(report.LostAt)
	}
	if was != nil {
		if connection, ok := s.connections[was.Pod]; ok && !connection.Connected {
			consider(connection.Since)
		}
	}
	return first
}

// coordinatorNamedAt returns when a report first named the coordinator.
func (s *snapshot) coordinatorNamedAt(is *v1.Coordinator) time.Time {
	var first time.Time
	for _, report := range s.reports {
		if report.Report.Coordinator == is.Pod && int64(report.Report.Term) == is.Term &&
			(first.IsZero() || report.NamedAt.Before(first)) {
			first = report.NamedAt
		}
	}
	return first
}

// changes returns the first and the last change that agents have reported since the
// previous reconcile.
func (s *snapshot) changes() (first, last time.Time) {
	for _, report := range s.reports {
		at := report.Report.ChangedAt
		if !at.After(s.state.latestChange) {
			continue
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}
