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

// document is the Document of a list. Its revision is the published one's if
// nothing in it is new.
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

func configMap(group *v1.ElectionGroup, document control.Document, authorities string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: ownedMeta(group, control.ConfigMapName(group.Name)),
		Data:       map[string]string{control.DocumentKey: encodeDocument(document), control.CABundleKey: authorities},
	}
}

const kind = "ElectionGroup"

// owned is the metadata of an object that goes when the group goes.
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

// OwnedByOther reports whether an object, of a name that one of the group's should
// have, is somebody else's: it has another owner, or neither an owner nor our
// label. What an earlier group of the name has left, or a backup has brought back
// from one, is ours.
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

// serviceConflict reports whether somebody else has a Service of the wanted name, or
// else whether the one that is there selects pods itself: then Kubernetes has slices
// of its own, which lead to all that it finds, and which it leaves when the selector
// is taken away.
func (f *Facts) serviceConflict() (foreign, selects bool) {
	if f.Group.Spec.Service == nil || f.Service == nil {
		return false, false
	}
	foreign = OwnedByOther(f.Service, f.Group)
	return foreign, !foreign && len(f.Service.Spec.Selector) > 0
}

// service is the Service that a group wants.
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

// EndpointSliceName is the name of the EndpointSlice of a group that wants a Service.
func EndpointSliceName(group *v1.ElectionGroup) string { return group.Spec.Service.Name + "-conclave" }

// EndpointSlice has the Service of the group lead to the coordinator's pod, or
// nowhere if that is nil.
//
// The API server lets nobody change the type of a slice's addresses: a slice that
// is there with another one has to be deleted first. Without a coordinator the
// type says nothing, and that of the slice that is there is as good.
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
		return slice // It has none yet, or none any more.
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
