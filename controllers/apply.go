package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/decide"
)

// apply applies actions in their order. The rest follows from the status: after an error of that, or while it has to
// wait, it's left to the next reconcile.
func (r *Reconciler) apply(ctx context.Context, s *snapshot, actions *decide.Actions) error {
	if !s.HoldTried {
		s.state.publishError = writeError{}
	}
	if s.Leads() {
		// Alerts depend on the gauges, also while the status can't be written.
		r.metrics.update(s.key(), func(g *groupMetrics) { g.Gauges = actions.Gauges })
	}
	releaseErr := r.applyFinalizers(ctx, s.Group.Name, actions.Release, false)
	r.sendCommands(s, actions.Commands)
	var pushErr error
	if !actions.Publishes {
		if pushErr = r.pushDocument(ctx, s, actions, false); apierrors.IsConflict(pushErr) {
			return pushErr
		}
	}
	written, statusErr := r.applyStatus(ctx, s, actions)
	if !written {
		return errors.Join(statusErr, s.holdErr, pushErr, releaseErr)
	}
	if actions.Publishes {
		pushErr = r.pushDocument(ctx, s, actions, true)
	}
	s.state.memory = s.state.memory.Applied(s.Facts, actions)
	if s.Leads() {
		r.measure(s, actions)
	}
	if t := actions.Traffic; s.Leads() && actions.Status == nil && len(t.Demotions)+len(t.Labels) > 0 &&
		r.mustWait(s, decide.LimitChanges) {
		t.Demotions, t.Labels = nil, nil // An agent that comes and goes may change its label without an election.
	}
	routingErrs, eventErr := r.applyTraffic(ctx, s, actions.Traffic)
	if next := s.state.routingError.next(routingErrs...); next != s.state.routingError {
		// The status has been written before. The next reconcile adds the error.
		s.state.routingError, s.wakeAt = next, s.Now
	}
	return errors.Join(append(routingErrs, statusErr, s.holdErr, pushErr, releaseErr, eventErr)...)
}

// applyStatus writes the status, unless it has to wait (limits.go). If the API server refuses it as invalid, it writes
// that instead, and the traffic follows all the same. It reports whether the status is written, or doesn't change.
func (r *Reconciler) applyStatus(ctx context.Context, s *snapshot, actions *decide.Actions) (written bool, err error) {
	if actions.Status == nil {
		return true, nil
	}
	if r.mustWait(s, actions.Limit) {
		if s.Leads() {
			r.metrics.update(s.key(), func(g *groupMetrics) { g.deferred++ })
		}
		return false, nil
	}
	err = r.writeStatus(ctx, s, actions.Status)
	if !apierrors.IsInvalid(err) {
		return err == nil, err
	}
	rejected, _ := newWriteError(err)
	s.Errors.Status = rejected.text
	*actions, s.state.memory = decide.Step(s.Facts, s.state.memory)
	if actions.Status != nil {
		if instead := r.writeStatus(ctx, s, actions.Status); instead != nil {
			return false, instead
		}
	}
	return true, err
}

// writeStatus writes the status, based on the version that was read: the API server rejects an
// update that is based on an older one.
func (r *Reconciler) writeStatus(ctx context.Context, s *snapshot, status *v1.ElectionGroupStatus) error {
	group := s.Group.DeepCopy()
	group.Status = *status
	if err := r.writer.Status().Update(ctx, group); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// sendCommands sends agents their commands.
func (r *Reconciler) sendCommands(s *snapshot, commands []decide.Command) {
	for _, c := range commands {
		command := agents.SetEligible(s.Group.Name, c.Eligible)
		if c.Leave != nil {
			command = agents.LeaveGroup(s.Group.Name, c.Leave.UID, c.Leave.Revision)
		}
		r.agents.Send(s.pod(c.Pod), command)
	}
}

// pushDocument sends the document to the agents that report an older one: the status has it (ADR 41).
//
// An agent without a document of the group would begin with this one. If the cache is behind, that
// has an old list. So unless this reconcile has written the status, such agents get it only if
// the API server has the same version of the group. The others know a list that isn't newer.
func (r *Reconciler) pushDocument(ctx context.Context, s *snapshot, actions *decide.Actions, written bool) error {
	d := actions.Document
	if d == nil {
		return nil
	}
	command := agents.PushDocument(s.Group.Name, d.UID, d.Revision, d.Encoded)
	for _, pod := range d.To {
		r.agents.Send(s.pod(pod), command)
	}
	first := slices.DeleteFunc(d.First, func(pod string) bool { return r.agents.Sent(s.pod(pod), command) })
	if !written && len(first) > 0 {
		if err := r.readSame(ctx, s.Group, &v1.ElectionGroup{}); err != nil {
			return err
		}
	}
	for _, pod := range first {
		r.agents.Send(s.pod(pod), command)
	}
	return nil
}

// measure counts and measures what has become visible in the status.
func (r *Reconciler) measure(s *snapshot, actions *decide.Actions) {
	m := &actions.Measures
	if m.Elected {
		r.metrics.update(s.key(), func(g *groupMetrics) { g.elections++ })
	}
	if m.Failover != nil {
		r.metrics.failover.WithLabelValues(m.End).Observe(m.Failover.Seconds())
		r.metrics.update(s.key(), func(g *groupMetrics) {
			gaps := &g.others
			if m.End == decide.EndFailure {
				gaps = &g.failures
			}
			gaps.count++
			gaps.total += *m.Failover
		})
	}
	if actions.Status != nil && !m.FirstChange.IsZero() {
		r.metrics.lag.Observe(max(time.Since(m.FirstChange), 0).Seconds())
	}
}

// applyTraffic writes everything that follows from the status. It returns the errors of the objects that route traffic,
// and that of the events. If a demotion fails, traffic must follow the coordinator all the same.
func (r *Reconciler) applyTraffic(ctx context.Context, s *snapshot, t *decide.Traffic) (routing []error, events error) {
	others, demotions := newParallel(), newParallel()
	others.run(func() error { return r.applyService(ctx, s, t) })
	others.run(func() error {
		events = r.recordEvents(ctx, s, t.Events)
		return nil
	})
	for _, l := range t.Demotions {
		demotions.run(func() error { return r.applyRole(ctx, s.Group.Name, l.Pod, l.Role) })
	}
	routing = demotions.wait()
	for _, l := range t.Labels {
		others.run(func() error { return r.applyRole(ctx, s.Group.Name, l.Pod, l.Role) })
	}
	return append(routing, others.wait()...), events
}
