package controllers

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/net/fair"
)

// newQueue returns a work queue in which namespaces take turns: whoever changes thousands of groups or pods delays
// those of other namespaces by one reconcile. It replaces the priority queue of controller-runtime, whose only priority
// is that of objects that have changed over objects that a manager finds when it starts.
func newQueue(name string,
	limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: &byNamespace{}})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: queue})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})
}

// byNamespace stores the requests of a work queue.
type byNamespace struct {
	requests fair.Queue[string, reconcile.Request]
}

func (*byNamespace) Touch(reconcile.Request) {}

func (q *byNamespace) Push(request reconcile.Request) { q.requests.Push(request.Namespace, request) }

func (q *byNamespace) Len() int { return q.requests.Len() }

func (q *byNamespace) Pop() reconcile.Request {
	request, _ := q.requests.Pop(func(string) bool { return true })
	return request
}

// queue is the work queue of the group controller; nil before that runs.
type queue = atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]

// trigger queues a reconcile of a group after a delay, or earlier if one is queued.
func (r *Reconciler) trigger(group types.NamespacedName, delay time.Duration) {
	if q := r.queue.Load(); q != nil {
		(*q).AddAfter(reconcile.Request{NamespacedName: group}, delay)
	}
}

func (r *Reconciler) triggerAll(ctx context.Context) {
	var groups v1.ElectionGroupList
	if err := r.cached.List(ctx, &groups, client.UnsafeDisableDeepCopy); err != nil {
		r.log.Error(err, "cannot list groups")
	}
	for i := range groups.Items {
		r.trigger(client.ObjectKeyFromObject(&groups.Items[i]), 0)
	}
}
