package controllers

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// queue is where groups wait to be looked at; nil before the controller runs.
type queue = atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]

// listen is the source of the groups of which agents have news.
func (o *operator) listen(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.queue.Store(&q)
	go o.followAuthorities(ctx)
	return nil
}

// wake has a group be looked at in a while, or sooner.
func (o *operator) wake(group types.NamespacedName, in time.Duration) {
	if q := o.queue.Load(); q != nil {
		(*q).AddAfter(reconcile.Request{NamespacedName: group}, in)
	}
}

// news is called by the streams.
func (o *operator) news(pod types.NamespacedName, group string) {
	if group != "" {
		o.wake(types.NamespacedName{Namespace: pod.Namespace, Name: group}, o.options.Debounce)
		return
	}
	var found corev1.Pod
	err := o.cache.Get(context.Background(), pod, &found, client.UnsafeDisableDeepCopy)
	if err != nil {
		found.Namespace, found.Name = pod.Namespace, pod.Name
	}
	for _, request := range o.ofPod(context.Background(), &found) {
		o.wake(request.NamespacedName, o.options.Debounce)
	}
}

// followAuthorities has all groups be looked at when the authorities have changed.
func (o *operator) followAuthorities(ctx context.Context) {
	for {
		changed := o.options.CA.Changed()
		var groups v1.ElectionGroupList
		if err := o.cache.List(ctx, &groups, client.UnsafeDisableDeepCopy); err != nil {
			o.log.Error(err, "the groups can't be listed")
		}
		for i := range groups.Items {
			o.wake(client.ObjectKeyFromObject(&groups.Items[i]), 0)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// follow has the agent of a pod be heard for as long as there is one.
func (o *operator) follow(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	err := o.cache.Get(ctx, request.NamespacedName, &pod, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, err
	case apierrors.IsNotFound(err), !membership.HasAgent(&pod), pod.Status.PodIP == "", membership.Finished(&pod):
		o.streams.Forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	o.streams.Follow(streams.Agent{
		Pod: request.NamespacedName, UID: pod.UID,
		Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(control.OperatorPort)),
	}, agentLife(&pod))
	return reconcile.Result{}, nil
}
