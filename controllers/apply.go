package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// fieldOwner is the operator in the managed fields of what it writes.
const fieldOwner = client.FieldOwner("conclave.dev")

// publish writes the member list and the revision of its document to the status, and then pushes
// the document to the agents: it pushes only what has been published (ADR 41).
//
// It publishes nothing because of obstacle: a pod that needs a finalizer didn't get it. What follows
// from agents alone waits while the group has used up its limit of writes.
//
// After a pushErr, the reconcile continues. After another error it must not: the decision is out of date.
func (r *Reconciler) publish(ctx context.Context, s *snapshot, p *membership.Plan,
	obstacle error,
) (pushErr, err error) {
	s.state.publishError = s.state.publishError.next(obstacle)
	if obstacle != nil || p.Document == nil {
		return obstacle, nil
	}
	status := *s.group.Status.DeepCopy()
	status.Protocol.MemberList, status.Protocol.Document = p.List, &p.Published
	same, err := sameStatus(&s.group.Status, &status)
	if err != nil {
		return nil, err
	}
	if !same {
		if isFromAgents(s.group.Status.Protocol.MemberList, p.List) && r.mustWait(s, &status) {
			return nil, nil
		}
		if err := r.writeStatus(ctx, s, &status); err != nil {
			return nil, err
		}
		s.state.published = &p.Published
	}
	pushErr = r.pushDocument(ctx, s, p, !same)
	if apierrors.IsConflict(pushErr) {
		return nil, pushErr
	}
	return pushErr, nil
}

// isFromAgents reports whether nothing has changed from a list to the next one but what agents say about themselves:
// their addresses, identities and terms.
func isFromAgents(was, is *v1.MemberList) bool {
	switch {
	case was == nil:
		return false
	case is.Version == was.Version:
		return is.State == was.State && len(is.Departed) == len(was.Departed)
	}
	return slices.Equal(is.Members, was.Members) && is.LeaseMillis == was.LeaseMillis
}

// reportStatus writes the status that follows from the reports of agents, unless it has to wait
// (limits.go). If the API server refuses that status, it writes that.
func (r *Reconciler) reportStatus(ctx context.Context, s *snapshot,
	status *v1.ElectionGroupStatus,
) (waits bool, refused, err error) {
	if equal, err := sameStatus(&s.group.Status, status); equal || err != nil {
		return false, nil, err
	}
	if r.mustWait(s, status) {
		if r.leads() {
			r.metrics.update(s.key, func(g *groupMetrics) { g.deferred++ })
		}
		return true, nil, nil
	}
	err = r.writeStatus(ctx, s, status)
	if apierrors.IsInvalid(err) {
		rejected, _ := newWriteError(err)
		return false, err, r.updateStatus(ctx, s, groupstatus.Refused(s.group, rejected.text, s.now))
	}
	return false, nil, err
}

// updateStatus writes the status if it has changed.
func (r *Reconciler) updateStatus(ctx context.Context, s *snapshot, status *v1.ElectionGroupStatus) error {
	if equal, err := sameStatus(&s.group.Status, status); equal || err != nil {
		return err
	}
	return r.writeStatus(ctx, s, status)
}

// writeStatus writes the status, based on the version that was read: the API server rejects an
// update that is based on an older one.
func (r *Reconciler) writeStatus(ctx context.Context, s *snapshot, status *v1.ElectionGroupStatus) error {
	group := s.group.DeepCopy()
	group.Status = *status
	if err := r.writer.Status().Update(ctx, group); err != nil {
		// The API server may have written it, without its events.
		s.state.eventsRecovered = false
		return fmt.Errorf("write the status: %w", err)
	}
	s.group = group
	return nil
}

// sameStatus compares statuses as JSON, where times have a precision of a second or a microsecond.
func sameStatus(a, b *v1.ElectionGroupStatus) (bool, error) {
	first, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	second, err := json.Marshal(b)
	return bytes.Equal(first, second), err
}

// vacancyMax is how long a Service points at the former coordinator while there is none. Usually, the next one is
// elected sooner. kube-proxy applies a change at once, but the next change a second later: that would be the next
// coordinator.
const vacancyMax = 500 * time.Millisecond

// applyTraffic writes everything that follows from the status. It returns the errors
// of the objects that route traffic, and that of the events.
func (r *Reconciler) applyTraffic(ctx context.Context, s *snapshot, p *membership.Plan,
	result *groupstatus.Result,
) (routingErrs []error, eventErr error) {
	s.keepsEndpoint = result.Coordinator == "" && !s.deadline.reached(s.state.vacantSince.Add(vacancyMax), s.now)
	parallel := newParallel()
	parallel.run(func() error { return r.applyService(ctx, s, p, result.Coordinator) })
	r.applyRoles(ctx, s, result.Roles, parallel)
	parallel.run(func() error {
		eventErr = r.recordEvents(ctx, s, result)
		return nil
	})
	return parallel.wait(), eventErr
}

// applyRoles writes the roles that pods don't have yet. A coordinator gets its label when no other pod has it any more,
// so that a selector doesn't find two pods, and before the followers get theirs: there may be more of them than
// maxParallelWrites.
func (r *Reconciler) applyRoles(ctx context.Context, s *snapshot, roles map[string]string, parallel *parallel) {
	label := v1.RoleLabel(s.key.Name)
	var former, coordinators, followers []string
	for name, role := range roles {
		switch pod := s.pods[name]; {
		case pod == nil || hasRole(pod, label, role):
		case role == v1.RoleCoordinator:
			coordinators = append(coordinators, name)
		case pod.Labels[label] == v1.RoleCoordinator:
			former = append(former, name)
		default:
			followers = append(followers, name)
		}
	}
	var demotions sync.WaitGroup
	demotions.Add(len(former))
	apply := func(name string) error { return r.applyRole(ctx, s.key.Name, s.pods[name], roles[name]) }
	for _, name := range former {
		parallel.run(func() error {
			defer demotions.Done()
			return apply(name)
		})
	}
	for _, name := range coordinators {
		parallel.run(func() error {
			demotions.Wait() // If one fails, traffic must follow the coordinator all the same.
			return apply(name)
		})
	}
	for _, name := range followers {
		parallel.run(func() error { return apply(name) })
	}
}

// maxParallelWrites bounds the number of concurrent requests for one group.
const maxParallelWrites = 16

// parallel runs independent requests. One that fails doesn't cancel the others.
type parallel struct {
	work  sync.WaitGroup
	slots chan struct{}
	mu    sync.Mutex
	errs  []error
}

func newParallel() *parallel { return &parallel{slots: make(chan struct{}, maxParallelWrites)} }

func (p *parallel) run(request func() error) {
	p.slots <- struct{}{}
	p.work.Go(func() {
		defer func() { <-p.slots }()
		if err := request(); err != nil {
			p.mu.Lock()
			p.errs = append(p.errs, err)
			p.mu.Unlock()
		}
	})
}

func (p *parallel) wait() []error {
	p.work.Wait()
	return p.errs
}
