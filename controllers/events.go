package controllers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/report"
)

// recordEvents writes the events of a change after the change itself. What can't
// be written is kept for the next look.
func (o *operator) recordEvents(ctx context.Context, s *scene, result *report.Result) error {
	for _, e := range result.Events {
		s.memory.events = append(s.memory.events, record{name: eventName(s.group, e.Reason), Event: e})
	}
	for len(s.memory.events) > 0 {
		if err := o.record(ctx, s.group, s.memory.events[0]); err != nil {
			return err
		}
		s.memory.events = s.memory.events[1:]
	}
	return nil
}

// eventName is the same for the same change, whoever writes it and how often.
func eventName(group *v1.ElectionGroup, reason string) string {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s %s %d", group.UID, reason, group.Status.Term)
	if agreed := meta.FindStatusCondition(group.Status.Conditions, string(v1.Agreed)); agreed != nil && agreed.Status == metav1.ConditionFalse {
		fmt.Fprintf(sum, " %d", agreed.LastTransitionTime.Unix())
	}
	return group.Name + "." + strconv.FormatUint(sum.Sum64(), 16)
}

func (o *operator) record(ctx context.Context, group *v1.ElectionGroup, e record) error {
	written := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: group.Namespace, Name: e.name},
		EventTime:           metav1.NowMicro(),
		ReportingController: "conclave.dev/manager",
		ReportingInstance:   o.instance,
		Action:              "Observed",
		Type:                e.Type,
		Reason:              e.Reason,
		Note:                e.Note,
		Regarding: corev1.ObjectReference{
			APIVersion: v1.GroupVersion.String(), Kind: "ElectionGroup",
			Namespace: group.Namespace, Name: group.Name, UID: group.UID,
		},
	}
	// Nobody reads events here, so none has to be waited for.
	err := o.client.Create(ctx, written, client.DisableReadYourWritesConsistency)
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil
	case errors.As(err, &status) && status.Status().Code/100 == 4 && !apierrors.IsTooManyRequests(err):
		// The namespace is being deleted, for example. An event isn't worth more attempts.
		o.log.Info("an event isn't accepted", "group", client.ObjectKeyFromObject(group), "reason", e.Reason, "error", err.Error())
		return nil
	}
	return fmt.Errorf("write an event: %w", err)
}
