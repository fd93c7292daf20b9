package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// stale is how long to wait for the version of a group that somebody else has
// just written. Usually it comes by itself before.
const stale = 50 * time.Millisecond

// look looks at a group, and does what is to be done.
func (o *operator) look(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	group := &v1.ElectionGroup{}
	err := o.client.Get(ctx, request.NamespacedName, group)
	if apierrors.IsNotFound(err) || err == nil && group.DeletionTimestamp != nil {
		return reconcile.Result{}, o.cleanUp(ctx, request.NamespacedName)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	s, err := o.gather(ctx, group)
	if err != nil {
		return reconcile.Result{}, err
	}
	if behind, err := o.behind(ctx, s); behind || err != nil {
		return reconcile.Result{RequeueAfter: stale}, err
	}
	if err := o.act(ctx, s); apierrors.IsConflict(err) {
		// What was read isn't what is there: what was decided doesn't count.
		return reconcile.Result{RequeueAfter: stale}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	o.meters.looks.Inc()
	if s.again.at.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(time.Until(s.again.at), time.Millisecond)}, nil
}

// outdated reports whether a newer spec than that which was read has been acted
// on already: by another operator, if the cache is behind. The API server would
// refuse a status that was made from the older one, but not a ConfigMap.
func (s *scene) outdated() bool {
	newest := s.group.Status.ObservedGeneration
	if document, _ := s.published(); document != nil {
		newest = max(newest, document.Generation)
	}
	return newest > s.group.Generation
}

// behind reports whether the group is outdated in the cache. It needn't be: the
// status may be from a backup, and somebody may have written the document.
func (o *operator) behind(ctx context.Context, s *scene) (bool, error) {
	if !s.outdated() {
		return false, nil
	}
	now := &v1.ElectionGroup{}
	if err := o.live.Get(ctx, s.key, now); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	return now.UID != s.group.UID || now.Generation != s.group.Generation, nil
}

// act decides and applies: what agents mount first, for it is what they go by,
// and then what they have said. They elect whether or not they can be told more: a
// ConfigMap that can't be written holds up neither status nor traffic.
func (o *operator) act(ctx context.Context, s *scene) error {
	p := membership.MakePlan(s.plan())
	unpublished, err := o.publish(ctx, s, &p)
	if err != nil {
		return err
	}
	if p.ConfigMapConflict || p.ServiceConflict || p.ServiceHasSelector || p.EndpointSliceConflict {
		// Nobody tells us when it is gone: it isn't ours.
		s.again.due(s.now.Add(takenAgain), s.now)
	}
	before := s.group
	result := groupstatus.Evaluate(s.report(&p))
	if !result.RequeueAt.IsZero() {
		s.again.due(result.RequeueAt, s.now)
	}
	if err := o.updateStatus(ctx, s, &result.Status); err != nil {
		return err
	}
	o.count(s, before, &result)
	o.order(s, &result)
	unrouted, unrecorded := o.applyTraffic(ctx, s, &p, &result)
	if next := s.memory.unrouted.next(unrouted...); next != s.memory.unrouted {
		// The status was written before, so the next look says it.
		s.memory.unrouted, s.again = next, deadline{s.now}
	}
	return errors.Join(append(unrouted, unpublished, unrecorded)...)
}

// publish writes the list, and then what agents mount, and tells it them: only what
// is published is ever pushed (ADR 9). If the ConfigMap can't be written,
// that is unpublished; after a conflict nothing that was decided counts.
func (o *operator) publish(ctx context.Context, s *scene, p *membership.Plan) (unpublished, err error) {
	if p.ConfigMap == nil {
		s.memory.unpublished = refusal{}
		return nil, nil
	}
	status := *s.group.Status.DeepCopy()
	status.MemberList = p.List
	if err := o.updateStatus(ctx, s, &status); err != nil {
		return nil, err
	}
	unpublished = o.applyConfigMap(ctx, s, p.ConfigMap)
	s.memory.unpublished = s.memory.unpublished.next(unpublished)
	switch {
	case apierrors.IsConflict(unpublished):
		return nil, unpublished
	case unpublished != nil:
		return unpublished, nil
	}
	return nil, o.pushDocument(s, p.Document)
}

// takenAgain is how often is looked whether a name is free again.
const takenAgain = 30 * time.Second

// updateStatus writes the status if it isn't so already, from the version that
// was read: whoever has read an older one is refused.
func (o *operator) updateStatus(ctx context.Context, s *scene, status *v1.ElectionGroupStatus) error {
	same, err := alike(&s.group.Status, status)
	if same || err != nil {
		return err
	}
	group := s.group.DeepCopy()
	group.Status = *status
	if err := o.client.Status().Update(ctx, group); err != nil {
		// It may have been written all the same.
		s.memory.recalled = false
		return fmt.Errorf("write the status: %w", err)
	}
	s.group = group
	return nil
}

// alike compares two statuses as they are written: the API server keeps times to
// the second or the microsecond.
func alike(a, b *v1.ElectionGroupStatus) (bool, error) {
	first, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	second, err := json.Marshal(b)
	return string(first) == string(second), err
}

// pushDocument has the agents told the document that haven't got it.
func (o *operator) pushDocument(s *scene, document *control.Document) error {
	targets := s.uninformed(document)
	if len(targets) == 0 {
		return nil
	}
	body, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	errand := streams.PushDocument(s.key.Name, document.UID, strconv.FormatInt(document.Revision, 10), body)
	for _, pod := range targets {
		o.tell(s, pod, errand)
	}
	return nil
}

// uninformed are the pods whose agents go by an older document. One that isn't a
// member any more must know the list only until it has settled: then it is told
// to leave, and if it heard of the group again, it would begin anew.
func (s *scene) uninformed(document *control.Document) []string {
	list := s.group.Status.MemberList
	members := list.Members
	if list.State == v1.ListAdopting && list.Previous != nil {
		members = append(slices.Clip(members), list.Previous.Members...)
	}
	var pods []string
	for _, m := range members {
		pod := s.pods[m.Pod]
		if pod == nil || !s.lines[m.Pod].Accepts(s.key.Name) || !membership.NamesGroup(pod, s.key.Name) {
			continue
		}
		said := s.voices[m.Pod].Report
		if said == nil || said.UID != document.UID || said.Revision < document.Revision {
			pods = append(pods, m.Pod)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// order has agents told whether to stand, and which group to leave.
func (o *operator) order(s *scene, result *groupstatus.Result) {
	for pod, standing := range result.Eligibility {
		o.tell(s, pod, streams.SetEligible(s.key.Name, standing))
	}
	for _, pod := range result.Leave {
		voice, ok := s.voices[pod]
		if !ok || s.member(pod) && voice.Report.UID != string(s.group.UID) {
			// A member that is still in an earlier group of the name leaves that by
			// itself when it is told of this one.
			continue
		}
		o.tell(s, pod, streams.LeaveGroup(s.key.Name, voice.Report.UID))
	}
}

func (s *scene) member(pod string) bool {
	list := s.group.Status.MemberList
	return list != nil && slices.ContainsFunc(list.Members, func(m v1.Member) bool { return m.Pod == pod })
}

func (o *operator) tell(s *scene, pod string, errand streams.Command) {
	if found := s.pods[pod]; found != nil {
		o.streams.Send(client.ObjectKeyFromObject(found), errand)
	}
}
