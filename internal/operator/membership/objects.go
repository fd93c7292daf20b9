package membership

import (
	"cmp"
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// document returns the Document of a list. It has the revision of the published document
// if that is equal, and a higher one otherwise.
func (f *Facts) document(list *v1.MemberList) control.Document {
	document := Document(f.Group, list, f.Pods)
	if old := f.Published; old != nil && old.Revision >= f.Revision {
		document.Revision = old.Revision
		if reflect.DeepEqual(document, *old) {
			return document
		}
	}
	document.Revision = max(f.Revision, document.Revision) + 1
	document.Revision = max(document.Revision, f.Now.UnixMilli())
	return document
}

func configMap(group *v1.ElectionGroup, document control.Document, caBundle string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: ownedMeta(group, control.ConfigMapName(group.Name)),
		Data:       map[string]string{control.DocumentKey: encodeDocument(document), control.CABundleKey: caBundle},
	}
}

const kind = "ElectionGroup"

// ownedMeta returns the metadata of an object that is deleted with its group.
func ownedMeta(group *v1.ElectionGroup, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: group.Namespace,
		Name:      name,
		Labels:    map[string]string{v1.LabelGroup: group.Name},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(group, v1.GroupVersion.WithKind(kind)),
		},
	}
}

// OwnedByOther reports whether an object with a name that the group needs does not belong
// to the group: it has another owner, or neither an owner nor the group's label. An object
// of an earlier group of the same name belongs to the group, including one that was
// restored from a backup.
func OwnedByOther(object metav1.Object, group *v1.ElectionGroup) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return object.GetLabels()[v1.LabelGroup] != group.Name
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err != nil || version.Group != v1.GroupVersion.Group || owner.Kind != kind || owner.Name != group.Name
}

func (f *Facts) configMapConflict() bool {
	return f.ConfigMap != nil && OwnedByOther(f.ConfigMap, f.Group)
}

// serviceConflict reports whether the Service of the wanted name has another owner, or
// else a selector. Kubernetes creates EndpointSlices for a Service with a selector, which
// point at all pods that match. It doesn't delete them when the selector is removed.
func (f *Facts) serviceConflict() (otherOwner, hasSelector bool) {
	if f.Group.Spec.Service == nil || f.Service == nil {
		return false, false
	}
	otherOwner = OwnedByOther(f.Service, f.Group)
	return otherOwner, !otherOwner && len(f.Service.Spec.Selector) > 0
}

// wantedService returns the Service of a group that wants one.
func wantedService(group *v1.ElectionGroup) *corev1.Service {
	want := group.Spec.Service
	s := &corev1.Service{ObjectMeta: ownedMeta(group, want.Name)}
	for _, p := range want.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Port: p.Port, TargetPort: intstr.FromInt32(*cmp.Or(p.TargetPort, &p.Port)), Protocol: protocol(p),
		})
	}
	return s
}

func protocol(p v1.ServicePort) corev1.Protocol { return corev1.Protocol(cmp.Or(p.Protocol, v1.TCP)) }

// EndpointSliceName returns the name of the EndpointSlice of a group that wants a Service.
func EndpointSliceName(group *v1.ElectionGroup) string { return group.Spec.Service.Name + "-conclave" }

// EndpointSlice returns the EndpointSlice that points the group's Service at the pod of
// the coordinator, or at no pod if that is nil.
//
// The address type of an EndpointSlice is immutable: an existing slice with another type
// has to be deleted first. Without an endpoint, the type has no meaning, so an existing
// slice of the other type can remain.
func EndpointSlice(group *v1.ElectionGroup, coordinator *corev1.Pod) *discoveryv1.EndpointSlice {
	want := group.Spec.Service
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: ownedMeta(group, EndpointSliceName(group)), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	slice.Labels[discoveryv1.LabelServiceName] = want.Name
	slice.Labels[discoveryv1.LabelManagedBy] = v1.GroupVersion.Group
	for _, p := range want.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new(p.Name), Port: cmp.Or(p.TargetPort, new(p.Port)), Protocol: new(protocol(p)),
		})
	}
	if coordinator == nil {
		return slice
	}
	ip, err := netip.ParseAddr(coordinator.Status.PodIP)
	if err != nil {
		return slice // The pod has no address yet, or no longer has one.
	}
	if ip.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	endpoint := discoveryv1.Endpoint{
		Addresses:  []string{ip.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: coordinator.Namespace, Name: coordinator.Name, UID: coordinator.UID,
		},
	}
	if coordinator.Spec.NodeName != "" {
		endpoint.NodeName = new(coordinator.Spec.NodeName)
	}
	slice.Endpoints = append(slice.Endpoints, endpoint)
	return slice
}
