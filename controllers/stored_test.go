package controllers

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

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
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("s", 63), Name: strings.Repeat("g", 63), UID: "0b5c8f3e-0000-0000-0000-000000000000"}}
	group.Spec.Service = &v1.CoordinatorService{Name: strings.Repeat("s", 63)}
	for i := range 32 { // as many as the schema permits
		group.Spec.Service.Ports = append(group.Spec.Service.Ports, v1.ServicePort{
			Name: strings.Repeat("p", 60) + fmt.Sprintf("%03d", i), Port: int32(i + 1), AppProtocol: strings.Repeat("a", 316),
		})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: strings.Repeat("p", 253), UID: group.UID}}
	pod.Spec.NodeName, pod.Status.PodIP = strings.Repeat("n", 253), "2001:0db8:85a3:0000:1111:8a2e:0370:7334"
	want := membership.EndpointSlice(group, nil, pod)
	have, _ := stored(t, want).(*discoveryv1.EndpointSlice)
	if !sameMetadata(have, want) || !reflect.DeepEqual(have.Endpoints, want.Endpoints) || !reflect.DeepEqual(have.Ports, want.Ports) {
		t.Errorf("got %d ports and endpoints %+v, want those that were written", len(have.Ports), have.Endpoints)
	}
	service := membership.MakePlan(membership.Facts{Group: group}).Service
	if have, _ := stored(t, service).(*corev1.Service); !sameService(have, service) {
		t.Errorf("got Service %+v, want that which was written", have)
	}
}
