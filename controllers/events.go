package controllers

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
)

// recordEvents writes the events of a change after the change itself. It retains those
// that can't be written for the next reconcile, unless the API server will never
// accept them. Beyond the limit (limits.go), it retains the newest one. As everywhere in
// Kubernetes, events may get lost: if the operator crashes here, the history has the change.
//
// client-go's recorders don't fit. That of events.k8s.io makes elections of a group within six minutes one event with
// the text of the first, and writes it again every half an hour. In both, the events of all namespaces share a queue.
func (r *Reconciler) recordEvents(ctx context.Context, s *snapshot, events []groupstatus.Event) error {
	s.state.pendingEvents = append(s.state.pendingEvents, events...)
	limit := &s.state.limits.events
	for len(s.state.pendingEvents) > 0 {
		now := time.Now()
		if at := limit.next(now, nil); now.Before(at) {
			dropped := len(s.state.pendingEvents) - 1
			s.state.pendingEvents = s.state.pendingEvents[dropped:]
			s.state.droppedEvents += dropped
			if s.Leads() {
				r.metrics.update(s.key(), func(g *groupMetrics) { g.droppedEvents += uint64(dropped) })
			}
			s.wakeUp(at)
			return nil
		}
		limit.take()
		event := s.state.pendingEvents[0]
		if n := s.state.droppedEvents; n > 0 {
			event.Note = fmt.Sprintf("%s (after %d events that were left out)", event.Note, n)
		}
		err := r.createEvent(ctx, s.Group, event)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			r.log.Error(err, "dropped event", "group", s.key(), "note", event.Note)
		} else if err != nil {
			return err
		}
		s.state.pendingEvents, s.state.droppedEvents = s.state.pendingEvents[1:], 0
	}
	return nil
}

// eventName depends on the change only, so that a change has one event however often,
// and by whichever operator, it is written.
func eventName(group *v1.ElectionGroup, e groupstatus.Event) string {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s %s %s", group.UID, e.Reason, e.Key)
	return group.Name + "." + strconv.FormatUint(sum.Sum64(), 16)
}

// maxNote is the longest note that the API server accepts, in bytes.
const maxNote = 1024

func (r *Reconciler) createEvent(ctx context.Context, group *v1.ElectionGroup, e groupstatus.Event) error {
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: group.Namespace, Name: eventName(group, e)},
		EventTime:           metav1.NowMicro(),
		ReportingController: "conclave.dev/manager",
		ReportingInstance:   r.instance,
		Action:              "Observed",
		Type:                e.Type,
		Reason:              e.Reason,
		Note:                truncate(e.Note, maxNote),
		Regarding: corev1.ObjectReference{
			APIVersion: v1.GroupVersion.String(), Kind: "ElectionGroup",
			Namespace: group.Namespace, Name: group.Name, UID: group.UID,
		},
	}
	r.charge(group.Namespace)
	// The cache has no events, so the writer can't wait until this one appears there.
	err := r.writer.Create(ctx, event, client.DisableReadYourWritesConsistency)
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("write an event: %w", err)
}
