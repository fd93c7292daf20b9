package controllers_test

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func withService(group *v1.ElectionGroup) {
	group.Spec.Service = &v1.CoordinatorService{Name: group.Name + "-leader", Ports: []v1.ServicePort{{Port: 8080}}}
}

// endpoint returns the address that a Service points at, or "".
func (e *env) endpoint(service string) string {
	e.t.Helper()
	var slices discoveryv1.EndpointSliceList
	must.Succeed(e.t, e.client.List(e.t.Context(), &slices, client.InNamespace(e.namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			return endpoint.Addresses[0]
		}
	}
	return ""
}

// awaitRoute waits until the Service ledger-leader points at a pod.
func (e *env) awaitRoute(pod string) {
	e.t.Helper()
	e.eventually("the Service points at "+pod, func() bool { return e.endpoint("ledger-leader") == e.ip(pod) })
}

func (e *env) ip(pod string) string {
	e.t.Helper()
	return e.findPod(pod).Status.PodIP
}

// An EndpointSlice has one address type, which is immutable.
func TestServiceFollowsBetweenIPv4AndIPv6(t *testing.T) {
	e := newEnv(t)
	e.startOperator()
	pods := []string{"p-four", "p-six", "p-other"}
	e.startLedger(withService, pods...)
	for term, pod := range []string{"p-four", "p-six", "p-four"} {
		e.elect("ledger", pod, uint64(term+7))
		e.awaitCoordinator("ledger", pod, int64(term+7))
		e.awaitRoute(pod)
	}
}
