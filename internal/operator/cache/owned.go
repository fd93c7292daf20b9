package cache

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// stripGroup retains a group without the metadata that no decision uses. The API server ignores
// metadata when the status is written.
func stripGroup(object any) (any, error) {
	group, ok := object.(*v1.ElectionGroup)
	if !ok {
		return object, nil
	}
	stripped := &v1.ElectionGroup{
		TypeMeta: group.TypeMeta, ObjectMeta: stripMetadata(&group.ObjectMeta), Spec: group.Spec, Status: group.Status,
	}
	stripped.Generation, stripped.Labels = group.Generation, nil
	if confirmed, ok := group.Annotations[v1.AnnotationConfirmStopped]; ok {
		stripped.Annotations = map[string]string{v1.AnnotationConfirmStopped: confirmed}
	}
	return stripped, nil
}

// stripOwned returns the metadata that the cache retains of an object with the label of a group:
// what the operator writes, without what others have added.
func stripOwned(m *metav1.ObjectMeta) metav1.ObjectMeta {
	stripped := stripMetadata(m)
	stripped.Labels = map[string]string{}
	for _, key := range []string{v1.LabelGroup, discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy} {
		if value, ok := m.Labels[key]; ok {
			stripped.Labels[key] = value
		}
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		for _, text := range []*string{&owner.APIVersion, &owner.Kind, &owner.Name, (*string)(&owner.UID)} {
			*text = shorten(*text)
		}
		stripped.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return stripped
}

// shorten cuts a text that is longer than any name, so that it still is.
func shorten(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return strings.Clone(text[:most])
}

// maxServicePorts is the number of ports that a group's Service can have.
const maxServicePorts = 32

// someSelector stands for any selector of a Service.
var someSelector = map[string]string{"some": "selector"}

// stripService retains what the operator compares. Of too many ports it retains one too many.
func stripService(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Service{ObjectMeta: stripOwned(&service.ObjectMeta)}
	stripped.Spec.Type, stripped.Spec.ClusterIP = service.Spec.Type, service.Spec.ClusterIP
	stripped.Spec.PublishNotReadyAddresses, stripped.Spec.IPFamilies = service.Spec.PublishNotReadyAddresses,
		service.Spec.IPFamilies
	if len(service.Spec.Selector) > 0 {
		stripped.Spec.Selector = someSelector
	}
	for _, p := range service.Spec.Ports[:min(len(service.Spec.Ports), maxServicePorts+1)] {
		stripped.Spec.Ports = append(stripped.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Port: p.Port, TargetPort: p.TargetPort, Protocol: p.Protocol, AppProtocol: p.AppProtocol,
		})
	}
	return stripped, nil
}

// maxEndpoint is more than the bytes of an endpoint that the operator writes, with the longest
// names of a pod and its node.
const maxEndpoint = 1 << 10

// stripEndpointSlice retains an EndpointSlice as the operator writes it. Of another one it retains that it differs.
func stripEndpointSlice(object any) (any, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil
	}
	stripped := &discoveryv1.EndpointSlice{ObjectMeta: stripOwned(
		&slice.ObjectMeta), AddressType: slice.AddressType, Endpoints: slice.Endpoints, Ports: slice.Ports}
	tooLarge := func(e discoveryv1.Endpoint) bool { return e.Size() > maxEndpoint }
	if len(slice.Endpoints) > v1.MaxMembers || slices.ContainsFunc(slice.Endpoints, tooLarge) {
		stripped.Endpoints = make([]discoveryv1.Endpoint, 1) // The operator writes none without an address.
	}
	if len(slice.Ports) > maxServicePorts {
		stripped.Ports = make([]discoveryv1.EndpointPort, maxServicePorts+1)
	}
	return stripped, nil
}
