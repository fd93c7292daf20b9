package controllers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func withService(group *v1.ElectionGroup) {
	group.Spec.Service = &v1.CoordinatorService{Name: group.Name + "-leader", Ports: []v1.ServicePort{{Port: 8080}}}
}

// endpoint is the address that the Service of a group leads to.
func (s *stage) endpoint(service string) string {
	s.t.Helper()
	var slices discoveryv1.EndpointSliceList
	if err := s.client.List(s.t.Context(), &slices, client.InNamespace(s.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		s.t.Fatal(err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			return endpoint.Addresses[0]
		}
	}
	return ""
}

func (s *stage) ip(pod string) string {
	s.t.Helper()
	found := &corev1.Pod{}
	if err := s.client.Get(s.t.Context(), s.key(pod), found); err != nil {
		s.t.Fatal(err)
	}
	return found.Status.PodIP
}

func TestElectionIsReflected(t *testing.T) {
	s := newStage(t)
	pods := []string{"ledger-0", "ledger-1", "ledger-2"}
	for _, pod := range pods {
		s.pod(pod, "ledger")
	}
	s.declared("ledger", withService, pods...)
	s.operator()
	s.awaitAdopted("ledger", 1, pods...)
	s.elect("ledger", "ledger-2", 7)
	s.awaitCoordinator("ledger", "ledger-2", 7)
	s.awaitRole("ledger-2", "ledger", v1.RoleCoordinator)
	s.awaitRole("ledger-0", "ledger", v1.RoleFollower)
	s.await("the Service leads there", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-2") })

	s.deletePod("ledger-2")
	s.elect("ledger", "ledger-1", 8)
	s.awaitCoordinator("ledger", "ledger-1", 8)
	s.awaitRole("ledger-1", "ledger", v1.RoleCoordinator)
	s.await("the Service follows", func() bool { return s.endpoint("ledger-leader") == s.ip("ledger-1") })
}
