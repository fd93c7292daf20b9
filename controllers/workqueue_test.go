package controllers

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestNamespacesTakeTurnsInTheWorkQueue(t *testing.T) {
	request := func(namespace string, i int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("g-", i)}}
	}
	q := newQueue("test", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second))
	defer q.ShutDown()
	for i := range 1000 {
		q.Add(request("greedy", i))
	}
	q.Add(request("greedy", 0))
	q.Add(request("bank", 0))
	q.Add(request("bank", 1))
	expect.Equalf(t, q.Len(), 1002, "requests (each once: 1002)")
	for _, want := range []reconcile.Request{request("greedy", 0), request("bank", 0), request("greedy", 1), request("bank", 1), request("greedy", 2), request("greedy", 3)} {
		got, _ := q.Get()
		expect.Equal(t, got, want)
		q.Done(got)
	}
}
