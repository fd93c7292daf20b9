package controllers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// services watches the Services and EndpointSlices of groups once the operator may read them. Its
// role for that, config/rbac/services.yaml, is optional. It may also be bound after the manager has
// started: an installation creates objects in any order. If it is removed, writes fail.
type services struct {
	permitted atomic.Bool
	live      client.Reader
	watch     func() error
	log       logr.Logger
}

const servicesRecheck = 10 * time.Second

// setup begins the watches if the operator has the permission.
func (s *services) setup(mgr ctrl.Manager, groups controller.Controller, log logr.Logger) error {
	s.live, s.log = mgr.GetAPIReader(), log
	s.watch = func() error {
		for _, kind := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}} {
			if err := groups.Watch(source.Kind(mgr.GetCache(), kind, handler.EnqueueRequestsFromMapFunc(groupOfObject))); err != nil {
				return fmt.Errorf("watch each %s: %w", kindOf(kind), err)
			}
		}
		s.permitted.Store(true)
		return nil
	}
	permitted, err := s.ask(context.Background())
	if err != nil {
		return err
	}
	if permitted {
		return s.watch()
	}
	log.Info("the operator may not read Services and EndpointSlices, so groups with spec.service have none: see docs/install.md")
	return nil
}

// ask asks the API server whether the operator may list the objects: its role permits this together with everything else.
func (s *services) ask(ctx context.Context) (permitted bool, err error) {
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
		if err := s.live.List(ctx, list, client.Limit(1)); apierrors.IsForbidden(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("list one object: %w", err)
		}
	}
	return true, nil
}

// await begins the watches as soon as the operator has the permission, and then calls begun.
func (s *services) await(ctx context.Context, begun func()) {
	ticker := time.NewTicker(servicesRecheck)
	defer ticker.Stop()
	for !s.permitted.Load() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		permitted, err := s.ask(ctx)
		if err == nil && permitted {
			if err = s.watch(); err == nil {
				s.log.Info("the operator may write Services and EndpointSlices now")
				begun()
			}
		}
		if err != nil {
			s.log.Error(err, "cannot watch Services and EndpointSlices")
		}
	}
}
