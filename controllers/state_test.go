package controllers

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// Agents that have a revision of an operator whose clock was ahead accept only newer
// documents of the next group of the same name.
func TestRevisionIsRetainedAfterItsGroupIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states groupStates
		ledger := types.NamespacedName{Namespace: "bank", Name: "ledger"}
		ahead := time.Now().Add(20 * time.Second).UnixMilli()
		states.get(ledger, "first").memory.Revision = ahead
		expect.Equalf(t, states.get(ledger, "second").memory.Revision, ahead, "group was replaced: revision")
		states.forget(ledger)
		states.forget(ledger) // Each agent that leaves triggers another reconcile.
		expect.Equalf(t, states.get(ledger, "third").memory.Revision, ahead, "group was deleted: revision")
		states.forget(ledger)
		time.Sleep(21 * time.Second)
		states.forget(types.NamespacedName{Namespace: "bank", Name: "audit"})
		if len(states.groups) > 0 || len(states.deleted) > 0 {
			t.Errorf("got %v and %v, want only revisions that are ahead of the clock", states.groups, states.deleted)
		}
	})
}

// A pod that leads two groups loses both at once, as when its node is evacuated. The reconciles of both groups read the
// pod before either writes. The next reconcile corrects the annotation.
func TestDeletionCostAfterConcurrentChanges(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "a", UID: "u", Labels: map[string]string{
		"pod-template-hash": "x", v1.RoleLabel("ledger"): v1.RoleCoordinator, v1.RoleLabel("audit"): v1.RoleCoordinator,
	}, Annotations: map[string]string{corev1.PodDeletionCost: v1.CoordinatorDeletionCost}}}
	var both sync.WaitGroup
	both.Add(2)
	api := fake.NewClientBuilder().WithScheme(testclient.Scheme()).WithObjects(pod).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption,
		) error {
			both.Done()
			both.Wait()
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	r := &Reconciler{writer: api, options: Options{Leadership: NewLeadership()}}
	var done sync.WaitGroup
	for _, group := range []string{"ledger", "audit"} {
		done.Go(func() {
			expect.Succeed(t, r.applyRole(t.Context(), group, pod, v1.RoleFollower))
		})
	}
	done.Wait()
	both.Add(1) // The events of the pod trigger more reconciles.
	now := &corev1.Pod{}
	read := func() {
		must.Succeed(t, api.Get(t.Context(), client.ObjectKeyFromObject(pod), now))
	}
	read()
	expect.Succeed(t, r.applyRole(t.Context(), "ledger", now, v1.RoleFollower))
	read()
	if cost, ok := now.Annotations[corev1.PodDeletionCost]; ok {
		t.Errorf("got labels %v and cost %s, want none: the pod leads no group", now.Labels, cost)
	}
}

// stored returns what the cache retains of an object.
func stored(t *testing.T, object client.Object) any {
	t.Helper()
	for kind, options := range cache.Options().ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) {
			stripped, err := options.Transform(object)
			must.Succeed(t, err)
			return stripped
		}
	}
	t.Fatalf("got no kind %T in the cache", object)
	return nil
}

// The objects that the operator writes compare as equal in the cache, also the largest ones.
func TestWrittenObjectsAreComparedAsWhole(t *testing.T) {
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: strings.Repeat("s", 63), Name: strings.Repeat("g", 63), UID: "0b5c8f3e-0000-0000-0000-000000000000",
	}}
	group.Spec.Service = &v1.CoordinatorService{Name: strings.Repeat("s", 63)}
	for i := range 32 { // as many as the schema permits
		group.Spec.Service.Ports = append(group.Spec.Service.Ports, v1.ServicePort{
			Name: strings.Repeat("p", 60) + fmt.Sprintf("%03d", i), Port: int32(i + 1), AppProtocol: strings.Repeat("a", 316),
		})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: strings.Repeat("p", 253), UID: group.UID},
	}
	pod.Spec.NodeName, pod.Status.PodIP = strings.Repeat("n", 253), "2001:0db8:85a3:0000:1111:8a2e:0370:7334"
	want := membership.EndpointSlice(group, nil, pod)
	have, _ := stored(t, want).(*discoveryv1.EndpointSlice)
	if !sameMetadata(have, want) || !reflect.DeepEqual(have.Endpoints, want.Endpoints) ||
		!reflect.DeepEqual(have.Ports, want.Ports) {
		t.Errorf("got %d ports and endpoints %+v, want those that were written", len(have.Ports), have.Endpoints)
	}
	service := membership.MakePlan(&facts.Facts{Group: group}, membership.Waits{}).Service
	if have, _ := stored(t, service).(*corev1.Service); !sameService(have, service) {
		t.Errorf("got Service %+v, want that which was written", have)
	}
}
