package controllers

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
