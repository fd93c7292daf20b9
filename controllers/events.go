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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
)

// recordEvents writes the events of a change after the change itself. What can't
// be written is kept for the next look, unless it is refused for good.
func (o *operator) recordEvents(ctx context.Context, s *scene, result *groupstatus.Result) error {
	s.memory.events = append(s.memory.events, result.Events...)
	if err := o.recall(ctx, s); err != nil {
		return err
	}
	for len(s.memory.events) > 0 {
		err := o.record(ctx, s.group, s.memory.events[0])
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			o.log.Error(err, "an event is left out", "group", s.key, "note", s.memory.events[0].Note)
		} else if err != nil {
			return err
		}
		s.memory.events = s.memory.events[1:]
	}
	return nil
}

// recallable is how long ago a change may have been for an operator to look, once
// after its start, whether the one before it has died before it wrote the event.
// It is much less than the hour that the API server keeps events for.
const recallable = 10 * time.Minute

// recall looks for the events of what was in the status when we first saw it.
func (o *operator) recall(ctx context.Context, s *scene) error {
	if s.memory.recalled {
		return nil
	}
	for _, e := range groupstatus.Events(&v1.ElectionGroupStatus{}, &s.found) {
		if s.now.Sub(e.At) > recallable {
			continue
		}
		err := o.live.Get(ctx, types.NamespacedName{Namespace: s.key.Namespace, Name: eventName(s.group, e)}, &eventsv1.Event{})
		switch {
		case apierrors.IsNotFound(err):
			s.memory.events = append(s.memory.events, e)
		case err != nil:
			return fmt.Errorf("read an event: %w", err)
		}
	}
	s.memory.recalled = true
	return nil
}

// eventName is the same for the same change, whoever writes it and how often.
func eventName(group *v1.ElectionGroup, e groupstatus.Event) string {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s %s %s", group.UID, e.Reason, e.Key)
	return group.Name + "." + strconv.FormatUint(sum.Sum64(), 16)
}

// noteMax is how long a note the API server takes.
const noteMax = 1024

func (o *operator) record(ctx context.Context, group *v1.ElectionGroup, e groupstatus.Event) error {
	written := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: group.Namespace, Name: eventName(group, e)},
		EventTime:           metav1.NowMicro(),
		ReportingController: "conclave.dev/manager",
		ReportingInstance:   o.instance,
		Action:              "Observed",
		Type:                e.Type,
		Reason:              e.Reason,
		Note:                cut(e.Note, noteMax),
		Regarding: corev1.ObjectReference{
			APIVersion: v1.GroupVersion.String(), Kind: "ElectionGroup",
			Namespace: group.Namespace, Name: group.Name, UID: group.UID,
		},
	}
	// Nobody reads events here, so none has to be waited for.
	err := o.client.Create(ctx, written, client.DisableReadYourWritesConsistency)
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("write an event: %w", err)
}
