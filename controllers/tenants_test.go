package controllers_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestPodsOfANamespaceDelayOnlyTheirOwn: many pods of a namespace name groups that don't exist,
// and the API server takes its time to say so. The record of a pod in another namespace doesn't
// wait for all of them.
func TestPodsOfANamespaceDelayOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	const pods = 100
	greedy, e := newEnv(t), newEnv(t)
	var read atomic.Int32
	created := make(chan struct{})
	e.startOperator(func(o *operator) {
		o.namespaces = []string{greedy.namespace}
		o.beforeRead = func(r *http.Request) {
			if strings.Contains(r.URL.Path, "/"+greedy.namespace+"/electiongroups/missing-") {
				<-created
				read.Add(1)
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	e.createGroup("ledger", nil, "ledger-0")
	for i := range pods {
		greedy.selectedPod(fmt.Sprint("greedy-", i), fmt.Sprint("missing-", i), withApp("greedy"))
	}
	e.selectedPod("ledger-0", "", withApp("ledger"))
	close(created)
	e.awaitRecord("ledger-0", "ledger")
	if n := read.Load(); n > pods/2 {
		t.Errorf("got %d of %d pods of the other namespace before, want fewer than half", n, pods)
	}
}

// The cache has only a part of each object. What it leaves out remains when the operator writes
// the object.
func TestMetadataOfUsersRemains(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.startOperator()
	e.createSettledGroup(o)
	e.awaitCondition("ledger", v1.ConditionReady, v1.ReasonHealthy)
	objects := []client.Object{
		&v1.ElectionGroup{ObjectMeta: e.metadata("ledger")},
		&corev1.Service{ObjectMeta: e.metadata("ledger-leader")},
		&discoveryv1.EndpointSlice{ObjectMeta: e.metadata("ledger-leader-conclave")},
	}
	update := func(change func(client.Object)) { e.update(objects, change) }
	update(func(object client.Object) {
		labels := map[string]string{"of": "user"}
		maps.Copy(labels, object.GetLabels())
		object.SetLabels(labels)
		object.SetAnnotations(map[string]string{"of": "user"})
		if service, ok := object.(*corev1.Service); ok {
			service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}
	})
	e.awaitQuiet(o)
	e.edit("ledger", func(group *v1.ElectionGroup) {
		group.Spec.Service.Ports[0].Port = 1234
		group.Spec.Timing.DrainMillis = new(int32(1234))
	})
	e.elect("ledger", "ledger-1", 8)
	e.awaitCoordinator("ledger", "ledger-1", 8)
	e.eventually("the Service follows the coordinator", func() bool { return e.endpoint("ledger-leader") == e.ip("ledger-1") })
	service := &corev1.Service{}
	e.eventually("the Service has the new port", func() bool {
		return e.client.Get(t.Context(), e.key("ledger-leader"), service) == nil && service.Spec.Ports[0].Port == 1234
	})
	e.eventually("the settings are published", func() bool { return *e.document("ledger").Group.Timing.DrainMillis == 1234 })
	expect.Equalf(t, service.Spec.SessionAffinity, corev1.ServiceAffinityClientIP,
		"session affinity (of the user)")
	update(func(object client.Object) {
		if object.GetLabels()["of"] != "user" || object.GetAnnotations()["of"] != "user" {
			t.Errorf("%T: got labels %v and annotations %v, want those of the user, too", object, object.GetLabels(), object.GetAnnotations())
		}
	})
}
