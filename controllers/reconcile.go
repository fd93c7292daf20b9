package controllers

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// Reconciler reconciles groups, and connects to the agents of pods.
type Reconciler struct {
	options Options

	// There are three handles for the API server:
	//
	//   - cached reads from the informer cache at once. Use it for what the reconciler
	//     doesn't write, or where an old copy does no harm: a watch triggers another
	//     reconcile when the object changes.
	//   - writer writes. It also reads from the cache, but only after the cache has
	//     received the reconciler's own writes. Use it for objects that the reconciler
	//     writes: otherwise it would write them twice.
	//   - live reads from the API server, at the cost of a request. Use it before a step
	//     that can't be undone and that an old cache could cause, and for objects that
	//     the cache leaves out.
	cached client.Reader
	writer client.Client
	live   client.Reader

	// elected is closed when this replica becomes the leader.
	elected  <-chan struct{}
	agents   *agents.Streams
	metrics  *metricSet
	states   groupStates
	log      logr.Logger
	instance string
	queue    queue
	limits   namespaceLimits
	spread   *spreader
	services services
	// deleted has when the deletion of pods was requested that are gone.
	deleted *utilcache.LRUExpireCache
	// explanations limits the reads of pods that only the status explains.
	explanations *rate.Limiter
}

// staleRetry is the wait before the next reconcile of a group of which the cache has
// an old version. Usually the watch triggers it sooner.
const staleRetry = 50 * time.Millisecond

// Reconcile gathers the facts about a group, decides, and applies the decisions.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	group := &v1.ElectionGroup{}
	err := r.writer.Get(ctx, request.NamespacedName, group)
	if apierrors.IsNotFound(err) || err == nil && group.DeletionTimestamp != nil {
		return reconcile.Result{}, r.cleanUp(ctx, request.NamespacedName)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.verifySuspects(group)
	standby := !r.leads()
	if standby {
		if late, wait := r.awaitLeader(group); !late {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	s, err := r.gather(ctx, group)
	if err != nil {
		return reconcile.Result{}, err
	}
	if stale, err := r.isStale(ctx, s); stale || err != nil {
		return reconcile.Result{RequeueAfter: staleRetry}, err
	}
	apply := r.decideAndApply
	if standby {
		apply = r.reconcileStandby
	}
	if err := apply(ctx, s); apierrors.IsConflict(err) {
		// The facts were out of date, and so is the decision.
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if standby {
		s.deadline = deadline{s.writableAt}
	} else {
		r.metrics.reconciles.Inc()
		if group.Spec.Preemption.Spread != "" {
			r.spread.changed()
		}
	}
	if s.deadline.at.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(time.Until(s.deadline.at), time.Millisecond)}, nil
}

// decideAndApply publishes the member list first, since agents elect by it, and then
// writes the status that their reports amount to. Agents elect whether or not they get
// a new document: a finalizer that can't be written delays neither status nor traffic.
func (r *Reconciler) decideAndApply(ctx context.Context, s *snapshot) error {
	plan := membership.MakePlan(s.membershipFacts())
	if !plan.RequeueAt.IsZero() {
		s.deadline.reached(plan.RequeueAt, s.now)
	}
	holdErr, releaseErr := r.applyFinalizers(ctx, s.key.Name, plan.Hold, plan.Release)
	publishErr, err := r.publish(ctx, s, &plan, holdErr)
	before, leads := s.group, r.leads()
	result := groupstatus.Evaluate(s.statusFacts(&plan))
	if leads {
		// Alerts depend on the gauges, also while the status can't be written.
		r.metrics.update(s.key, func(g *groupMetrics) { g.groupGauges = s.gauges(&result) })
	}
	if err != nil {
		return err
	}
	if plan.ServiceProblem != nil && (!s.servicesForbidden || r.services.permitted.Load()) {
		// The cache leaves out objects of others, so no watch reports their deletion.
		s.deadline.reached(s.now.Add(conflictRecheck), s.now)
	}
	if !result.RequeueAt.IsZero() {
		s.deadline.reached(result.RequeueAt, s.now)
	}
	// Before the status: agents wait for no write, and neither do those of other groups.
	r.sendCommands(s, &plan, &result)
	if r.addUser(ctx, s, result.Status.History) {
		result = groupstatus.Evaluate(s.statusFacts(&plan))
	}
	waits, refusedErr, err := r.reportStatus(ctx, s, &result.Status)
	if err != nil {
		return err
	}
	if waits {
		// The rest follows from the status.
		return errors.Join(publishErr, releaseErr)
	}
	if leads {
		r.observe(s, before, &result)
	}
	routingErrs, eventErr := r.applyTraffic(ctx, s, &plan, &result)
	if next := s.state.routingError.next(routingErrs...); next != s.state.routingError {
		// The status has been written before. The next reconcile adds the error.
		s.state.routingError, s.deadline = next, deadline{s.now}
	}
	return errors.Join(append(routingErrs, refusedErr, publishErr, releaseErr, eventErr)...)
}

// conflictRecheck is how often a reconcile checks whether the name of another owner's
// object has become free.
const conflictRecheck = 30 * time.Second

// isStale reports whether the group in the cache is older than what an operator has
// already published: another operator, if the cache is behind. The API server would
// reject a status made from the older spec, but no other object.
//
// A newer generation in the status doesn't prove it: the status may come from a backup. Neither
// does an object that is missing, or that belongs to another group of the name.
func (r *Reconciler) isStale(ctx context.Context, s *snapshot) (bool, error) {
	if s.group.Status.ObservedGeneration <= s.group.Generation && !s.lacksObject() && !s.hasObjectOfOther() {
		return false, nil
	}
	return r.hasChanged(ctx, s)
}

// hasChanged asks the API server whether the spec is another one than in the cache, or the
// group has been deleted.
func (r *Reconciler) hasChanged(ctx context.Context, s *snapshot) (bool, error) {
	now := &v1.ElectionGroup{}
	if err := r.live.Get(ctx, s.key, now); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	return now.UID != s.group.UID || now.Generation != s.group.Generation || now.DeletionTimestamp != nil, nil
}

// lacksObject reports whether an object is missing that was written together with the
// first list.
func (s *snapshot) lacksObject() bool {
	return s.group.Status.Protocol.MemberList != nil && s.group.Spec.Service != nil &&
		s.service == nil && !s.servicesForbidden
}

// hasObjectOfOther reports whether an object belongs to another group of the name: an
// earlier one, or a later one if the cache is behind.
func (s *snapshot) hasObjectOfOther() bool {
	return s.service != nil && s.ofOther(s.service) || s.endpointSlice != nil && s.ofOther(s.endpointSlice)
}

func (s *snapshot) ofOther(object client.Object) bool {
	return !membership.OwnedByOther(object, s.group) && ofEarlierGroup(object, s)
}
