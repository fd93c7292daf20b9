package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/decide"
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

	agents   *agents.Streams
	metrics  *metricSet
	states   groupStates
	log      logr.Logger
	instance string
	// selection is the queue of the selection controller.
	queue, selection queue
	limits           namespaceLimits
	spread           *spreader
	services         services
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
	state := r.states.get(request.NamespacedName, group.UID)
	s, err := r.gather(ctx, group, state)
	if err != nil {
		return reconcile.Result{}, err
	}
	actions, err := r.decide(ctx, s)
	if err == nil && actions.Traffic != nil {
		err = r.apply(ctx, s, &actions)
		state.memory.Standby.Unfinished = err != nil && !s.Leads()
	}
	if apierrors.IsConflict(err) {
		// The facts were out of date, and so is the decision.
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if actions.Traffic != nil {
		r.metrics.reconciles.Inc()
	}
	if s.Leads() && group.Spec.Preemption.Spread != "" {
		r.spread.isChanged.Store(true)
	}
	if s.wakeAt.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(time.Until(s.wakeAt), time.Millisecond)}, nil
}

// decide makes steps until one needs no further facts. Actions without Traffic mean that there is nothing to do.
func (r *Reconciler) decide(ctx context.Context, s *snapshot) (actions decide.Actions, err error) {
	for {
		actions, s.state.memory = decide.Step(s.Facts, s.state.memory)
		for _, pod := range actions.Verify {
			r.agents.Verify(s.pod(pod))
		}
		switch {
		case actions.Read != nil:
			if err := r.read(ctx, s, actions.Read); err != nil {
				return actions, err
			}
		case actions.Hold != nil:
			r.hold(ctx, s, actions.Hold)
		default:
			s.wakeUp(actions.WakeAt)
			return actions, nil
		}
		s.Now = time.Now()
	}
}

// read reads what a step has asked for.
func (r *Reconciler) read(ctx context.Context, s *snapshot, read *decide.Read) error {
	if read.Group {
		if err := r.confirm(ctx, s.Group); err != nil {
			return err
		}
		s.Confirmed = true
	}
	if read.Witnesses {
		if err := r.readWitnesses(ctx, s.Facts); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	parallel := newParallel()
	for _, name := range read.Pods {
		parallel.run(func() error {
			pod := &corev1.Pod{}
			err := r.live.Get(ctx, r.podKey(s.Group, name), pod)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read pod %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			s.Fresh[name] = true
			if err == nil {
				pod = membership.AsMember(pod, s.Group)
				s.Pods[name] = pod
				r.addAgent(s.Facts, pod)
			}
			return nil
		})
	}
	return errors.Join(parallel.wait()...)
}

// hold adds the finalizer of the group to pods. Agents elect whether or not they get a new document: a finalizer that
// can't be written delays neither status nor traffic.
func (r *Reconciler) hold(ctx context.Context, s *snapshot, pods []*corev1.Pod) {
	err := r.applyFinalizers(ctx, s.Group.Name, pods, true)
	s.state.publishError = s.state.publishError.next(err)
	s.Errors.Publish, s.holdErr = s.state.publishError.text, err
	s.HoldTried, s.HoldFailed = true, err != nil
}
