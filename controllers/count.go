package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
)

// count measures what has just been written.
func (o *operator) count(s *scene, before *v1.ElectionGroup, result *groupstatus.Result) {
	now := meter{
		vacant:      result.Status.Coordinator == nil,
		disagreeing: meta.IsStatusConditionFalse(result.Status.Conditions, string(v1.Agreed)),
	}
	if agreed := meta.FindStatusCondition(result.Status.Conditions, string(v1.Agreed)); agreed != nil {
		now.divided = agreed.Reason == string(v1.ReasonCoordinatorsDiffer)
	}
	if list := s.group.Status.MemberList; list != nil {
		now.expected = len(list.Members)
		for _, m := range list.Members {
			now.connected += number(s.lines[m.Pod].Connected)
		}
	}
	was, is := before.Status.Coordinator, result.Status.Coordinator
	if is != nil && (was == nil || was.Pod != is.Pod || was.Term != is.Term) {
		now.elections = 1
		if lost, next := s.lost(was), s.named(is); before.Status.Term > 0 && !lost.IsZero() && !next.IsZero() {
			o.meters.failover.Observe(max(next.Sub(lost), 0).Seconds())
		}
		s.memory.elected = s.now
	}
	switch {
	case is != nil:
		s.memory.vacant = time.Time{}
	case s.memory.vacant.IsZero():
		s.memory.vacant = s.now
	}
	first, last := s.changes()
	if before != s.group && !first.IsZero() && !s.memory.reflected.IsZero() {
		o.meters.lag.Observe(max(time.Since(first), 0).Seconds())
	}
	if last.After(s.memory.reflected) {
		s.memory.reflected = last
	}
	o.meters.at(s.key, now)
}

// lost is when the first sign came, since the last election, that the
// coordinator is none any more.
func (s *scene) lost(was *v1.Coordinator) time.Time {
	first := s.memory.vacant
	sign := func(at time.Time) {
		if at.After(s.memory.elected) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, voice := range s.voices {
		sign(voice.Lost)
	}
	if was != nil {
		if line, ok := s.lines[was.Pod]; ok && !line.Connected {
			sign(line.Since)
		}
	}
	return first
}

// named is when the coordinator was first named.
func (s *scene) named(is *v1.Coordinator) time.Time {
	var first time.Time
	for _, voice := range s.voices {
		if voice.Report.Coordinator == is.Pod && int64(voice.Report.Term) == is.Term && (first.IsZero() || voice.Named.Before(first)) {
			first = voice.Named
		}
	}
	return first
}

// changes are the first and the last one that agents have told since the last look.
func (s *scene) changes() (first, last time.Time) {
	for _, voice := range s.voices {
		at := voice.Report.ChangedAt
		if !at.After(s.memory.reflected) {
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
