package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// permissionInterval is how often the manager asks for permissions that it lacks.
const permissionInterval = 10 * time.Second

// leaveOutForbidden leaves out the namespaces that the manager isn't permitted to read. Usually,
// such a namespace was deleted, and the RoleBinding with it. The cache would wait for the
// permission, and until then the manager would serve none of the others.
//
// It waits until there is a namespace to serve. When another one can be read later, it ends the
// returned context: the manager then starts again, because a cache can't get another namespace.
func (m *manager) leaveOutForbidden(ctx context.Context) (context.Context, error) {
	for {
		permitted, err := m.permittedNamespaces(ctx, m.watchNamespaces)
		if err != nil {
			m.log.Warn("cannot ask for permissions; retrying", "error", err)
		}
		forbidden := slices.DeleteFunc(slices.Clone(m.watchNamespaces), func(one string) bool { return slices.Contains(permitted, one) })
		if len(forbidden) > 0 && err == nil {
			m.log.Warn("cannot serve namespaces, because the RoleBinding conclave-manager-groups is missing in them", "namespaces", forbidden)
		}
		if len(permitted) > 0 || len(forbidden) == 0 {
			m.watchNamespaces = permitted
			return m.untilPermitted(ctx, forbidden), nil
		}
		if err := pause(ctx, permissionInterval); err != nil {
			return ctx, err
		}
	}
}

// untilPermitted returns a context that ends when the manager may read one of these namespaces.
func (m *manager) untilPermitted(ctx context.Context, forbidden []string) context.Context {
	if len(forbidden) == 0 {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for pause(ctx, permissionInterval) == nil {
			if permitted, err := m.permittedNamespaces(ctx, forbidden); err == nil && len(permitted) > 0 {
				m.log.Info("exiting to restart with additional namespaces", "namespaces", permitted)
				return
			}
		}
	}()
	return ctx
}

// pause returns an error if the context ends before the time has passed.
func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// permittedNamespaces returns those of some namespaces that the manager may read.
func (m *manager) permittedNamespaces(ctx context.Context, namespaces []string) (permitted []string, err error) {
	for _, namespace := range namespaces {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"},
		}}
		if err := m.live.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("ask for permissions in namespace %s: %w", namespace, err)
		}
		if review.Status.Allowed {
			permitted = append(permitted, namespace)
		}
	}
	return permitted, nil
}
