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
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// services watches the Services and EndpointSlices of groups while the operator may read them. Its
// role for that, config/rbac/services.yaml, is optional. It may also be bound or withdrawn while the
// manager runs: an installation creates objects in any order.
type services struct {
	permitted atomic.Bool
	// refused is set when the API server has refused a request because of the permission.
	refused atomic.Bool
	watched bool
	live    client.Reader
	cache   ctrlcache.Cache
	groups  controller.Controller
	log     logr.Logger
}

// servicesRecheck is how often the operator asks whether it has the permission, if it hasn't, or may have lost it.
const servicesRecheck = 10 * time.Second

// setup begins the watches if the operator has the permission.
func (s *services) setup(mgr ctrl.Manager, groups controller.Controller, log logr.Logger) error {
	s.live, s.cache, s.groups, s.log = mgr.GetAPIReader(), mgr.GetCache(), groups, log
	permitted, err := s.firstAnswer(context.Background())
	s.permitted.Store(permitted)
	if err == nil && !permitted {
		log.Info("the operator may not read Services and EndpointSlices, so it creates none for groups with " +
			"spec.service: see docs/install.md")
	}
	return err
}

// firstAnswer asks until the API server answers. It may be starting, too.
func (s *services) firstAnswer(ctx context.Context) (permitted bool, err error) {
	_ = wait.PollUntilContextTimeout(ctx, time.Second, reconcileTimeout, true, func(ctx context.Context) (bool, error) {
		permitted, err = s.ask(ctx)
		return err == nil, nil
	})
	return permitted, err
}

// ask asks the API server whether the operator may list the objects: its role permits this together with everything
// else. If so, the cache has them.
func (s *services) ask(ctx context.Context) (permitted bool, err error) {
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
		if err := s.live.List(ctx, list, client.Limit(1)); apierrors.IsForbidden(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("list one object: %w", err)
		}
	}
	return true, s.prepare(ctx)
}

// prepare begins the watches, and waits until the cache has all objects, if it has started: reconciles would wait for
// them.
func (s *services) prepare(ctx context.Context) error {
	if s.watched {
		return nil
	}
	for _, kind := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}} {
		if _, err := s.cache.GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("read each %s: %w", kindOf(kind), err)
		}
		if err := s.groups.Watch(source.Kind(s.cache, kind, handler.EnqueueRequestsFromMapFunc(groupOfObject))); err != nil {
			return fmt.Errorf("watch each %s: %w", kindOf(kind), err)
		}
	}
	s.watched = true
	return nil
}

// follow finds out when the permission comes or goes, and calls changed then.
func (s *services) follow(ctx context.Context, changed func()) {
	ticker := time.NewTicker(servicesRecheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s.permitted.Load() && !s.refused.Swap(false) {
			continue
		}
		permitted, err := s.ask(ctx)
		if err != nil {
			s.log.Error(err, "cannot find out whether the operator may read Services and EndpointSlices")
		} else if s.permitted.Swap(permitted) != permitted {
			s.log.Info("the operator's permission for Services and EndpointSlices has changed", "permitted", permitted)
			changed()
		}
	}
}
