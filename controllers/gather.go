package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// gather takes a snapshot of a group.
func (r *Reconciler) gather(ctx context.Context, group *v1.ElectionGroup, state *groupState) (*snapshot, error) {
	s := &snapshot{state: state, Facts: facts.New(group)}
	s.Errors = facts.Errors{Routing: state.routingError.text, ServicesDenied: state.routingError.servicesDenied()}
	if !r.leads() {
		s.LeaderGrace = r.options.LeaderGrace
	}
	if err := r.gatherObjects(ctx, s); err != nil {
		return nil, err
	}
	if err := r.countGroups(ctx, s); err != nil {
		return nil, err
	}
	if err := r.gatherPods(ctx, s); err != nil {
		return nil, err
	}
	s.Preferred = r.spread.preferred(s.key())
	s.Now = time.Now()
	return s, nil
}

// groupsRecheck is how often the operator checks whether it may serve a group, because others have been deleted.
const groupsRecheck = 30 * time.Second

// countGroups counts the groups of the namespace that have members. A group that has members goes on in any case.
func (r *Reconciler) countGroups(ctx context.Context, s *snapshot) error {
	if r.options.MaxGroups == 0 || s.MemberList() != nil {
		return nil
	}
	var groups v1.ElectionGroupList
	err := r.cached.List(ctx, &groups, client.InNamespace(s.Group.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the groups of the namespace: %w", err)
	}
	served := 0
	for i := range groups.Items {
		if groups.Items[i].Status.Protocol.MemberList != nil {
			served++
		}
	}
	if served >= r.options.MaxGroups {
		s.GroupsMax = r.options.MaxGroups
		s.wakeUp(time.Now().Add(groupsRecheck))
	}
	return nil
}

func (r *Reconciler) gatherPods(ctx context.Context, s *snapshot) error {
	indexed, err := r.podsOf(ctx, s.key())
	if err != nil {
		return err
	}
	for i := range indexed {
		s.Pods[indexed[i].Name] = &indexed[i]
	}
	// The index doesn't find members, or pods whose agents report the group, that don't name it.
	others := membership.MembersOf(s.Group)
	for name := range r.agents.Reports(s.key()) {
		others = append(others, name)
	}
	return r.addPods(ctx, s.Facts, others)
}

func (r *Reconciler) gatherObjects(ctx context.Context, s *snapshot) (err error) {
	s.ServicesPermitted = r.services.permitted.Load()
	s.ServicesForbidden = !s.ServicesPermitted
	if s.Group.Spec.Service == nil || s.ServicesForbidden {
		return nil
	}
	defer func() {
		if apierrors.IsForbidden(err) { // Agents must not wait for the permission.
			r.services.refused.Store(true)
			s.ServicesForbidden, s.Service, s.EndpointSlice, err = true, nil, nil, nil
		}
	}()
	s.Service, err = getObject[corev1.Service](ctx, r, s.Group.Namespace, s.Group.Spec.Service.Name)
	if err != nil {
		return err
	}
	s.EndpointSlice, err = getObject[discoveryv1.EndpointSlice](ctx, r, s.Group.Namespace,
		membership.EndpointSliceName(s.Group))
	return err
}
