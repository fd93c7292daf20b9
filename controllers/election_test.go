package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func withService(group *v1.ElectionGroup) {
	group.Spec.Service = &v1.CoordinatorService{Name: group.Name + "-leader", Ports: []v1.ServicePort{{Port: 8080}}}
}

// endpoint returns the address that a Service points at, or "".
func (e *env) endpoint(service string) string {
	e.t.Helper()
	var slices discoveryv1.EndpointSliceList
	if err := e.client.List(e.t.Context(), &slices, client.InNamespace(e.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		e.t.Fatal(err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			return endpoint.Addresses[0]
		}
	}
	return ""
}

func (e *env) ip(pod string) string {
	e.t.Helper()
	found := &corev1.Pod{}
	if err := e.client.Get(e.t.Context(), e.key(pod), found); err != nil {
		e.t.Fatal(err)
	}
	return found.Status.PodIP
}

// An EndpointSlice has one address type, which is immutable.
func TestServiceFollowsBetweenIPv4AndIPv6(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startOperator()
	pods := []string{"p-four", "p-six", "p-other"}
	for _, pod := range pods {
		e.pod(pod, "ledger")
	}
	e.createGroup("ledger", withService, pods...)
	e.awaitAdopted("ledger", 1, pods...)
	for term, pod := range []string{"p-four", "p-six", "p-four"} {
		e.elect("ledger", pod, uint64(term+7))
		e.awaitCoordinator("ledger", pod, int64(term+7))
		e.eventually("the Service points at the coordinator", func() bool { return e.endpoint("ledger-leader") == e.ip(pod) })
	}
}

func TestStatusLabelsAndServiceFollowElections(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		e.pod(pod, "ledger")
	}
	e.createGroup("ledger", withService, pods...)
	e.startOperator()
	e.awaitAdopted("ledger", 1, pods...)
	e.elect("ledger", "ledger-2", 7)
	e.awaitCoordinator("ledger", "ledger-2", 7)
	e.awaitRole("ledger-2", "ledger", v1.RoleCoordinator)
	e.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	e.eventually("the Service points at the coordinator", func() bool { return e.endpoint("ledger-leader") == e.ip("ledger-2") })

	e.deletePod("ledger-2")
	e.elect("ledger", "ledger-1", 8)
	e.awaitCoordinator("ledger", "ledger-1", 8)
	e.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	e.eventually("the Service follows the coordinator", func() bool { return e.endpoint("ledger-leader") == e.ip("ledger-1") })

	lost := time.Now()
	e.elect("ledger", "", 9)
	e.eventually("the Service points at no pod", func() bool { return e.endpoint("ledger-leader") == "" })
	if after := time.Since(lost); after < 500*time.Millisecond {
		t.Errorf("the Service changed %s after the coordinator was lost, want at least 500ms: the next one is usually elected sooner", after)
	}
}
