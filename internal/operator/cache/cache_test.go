package cache

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// retained returns how many bytes the cache retains of an object, and expects that it retains
// the same if it strips the object again.
func retained(t *testing.T, strip func(any) (any, error), object any) int {
	t.Helper()
	stripped, err := strip(object)
	must.Succeed(t, err)
	again, err := strip(stripped)
	must.Succeed(t, err)
	expect.DeepEqualf(t, stripped, again, "object that is stripped again")
	return sizeOf(reflect.ValueOf(stripped))
}

// sizeOf returns how many bytes a value takes, with all to which it refers.
func sizeOf(v reflect.Value) int { return int(v.Type().Size()) + referred(v) }

// referred returns how many bytes a value refers to.
func referred(v reflect.Value) (size int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return sizeOf(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			size += referred(field)
		}
	case reflect.Slice:
		size = (v.Cap() - v.Len()) * int(v.Type().Elem().Size())
		for i := range v.Len() {
			size += sizeOf(v.Index(i))
		}
	case reflect.Map:
		const overhead = 16 // A map is filled to between 7/16 and 7/8.
		for each := v.MapRange(); each.Next(); {
			size += overhead + sizeOf(each.Key()) + sizeOf(each.Value())
		}
	default: // It refers to nothing.
	}
	return size
}

// hostileMetadata is as large as the API server accepts: it limits annotations to 256 KiB, and an object to 1.5 MiB.
func hostileMetadata() metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name: strings.Repeat("n", 253), Namespace: strings.Repeat("s", 63), UID: "0b5c8f3e-0000-0000-0000-000000000000",
		Labels: map[string]string{}, Annotations: map[string]string{},
	}
	for i := range 20_000 {
		m.Labels[fmt.Sprint("l", i)] = "v"
		m.Labels[v1.RoleLabel(fmt.Sprint("g", i))] = v1.RoleFollower
		m.Finalizers = append(m.Finalizers, v1.StopFinalizer(fmt.Sprint("g", i)))
		m.Annotations[fmt.Sprint("a", i)] = "1"
		m.OwnerReferences = append(m.OwnerReferences,
			metav1.OwnerReference{APIVersion: "v1", Kind: "K", Name: fmt.Sprint("o", i), UID: "u"})
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 300_000))}}
	return m
}

// A user who may create pods can fill each with a megabyte.
func TestMemoryOfAPodIsBounded(t *testing.T) {
	groups := make([]string, inject.MaxGroups)
	for i := range groups {
		groups[i] = strings.Repeat("g", v1.MaxNameLength-3) + fmt.Sprintf("%03d", i)
	}
	hostile := func() *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: hostileMetadata()}
		pod.Annotations[v1.AnnotationGroups] = strings.Join(groups, ",")
		pod.Annotations[v1.AnnotationSelectedBy] = strings.Join(groups, ",")
		for _, group := range groups {
			pod.Labels[v1.RoleLabel(group)] = v1.RoleFollower
		}
		pod.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer}}
		for i := range 5000 {
			name := fmt.Sprint("c", i)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: name, Ports: []corev1.ContainerPort{{Name: name, ContainerPort: 1}, {Name: "x" + name, ContainerPort: 2}},
			})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
				corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(name)})
		}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: v1.AgentContainer, RestartCount: 3}}
		return pod
	}
	// Nearly too many labels and annotations take more than too many.
	nearly := hostile()
	nearly.Labels, nearly.Annotations = map[string]string{}, map[string]string{
		v1.AnnotationGroups: strings.Join(groups, ","), v1.AnnotationSelectedBy: strings.Join(groups, ","),
	}
	for i := range 460 {
		nearly.Labels[fmt.Sprint("l", i)] = "v"
		nearly.Annotations[fmt.Sprint("a", i)] = "1"
	}
	const most = 128 << 10
	for name, pod := range map[string]*corev1.Pod{"too much": hostile(), "nearly too much": nearly} {
		size := retained(t, stripPod, pod)
		t.Logf("%s: %d bytes", name, size)
		expect.AtMostf(t, size, most, "%s: bytes of a pod", name)
	}
	stripped, _ := stripPod(hostile())
	pod, _ := stripped.(*corev1.Pod)
	if pod.Labels[v1.RoleLabel(groups[99])] != v1.RoleFollower || pod.Annotations[v1.AnnotationGroups] == "" {
		t.Error("got a pod without its groups or their role labels, want both")
	}
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil ||
		pod.Status.InitContainerStatuses[0].RestartCount != 3 {
		t.Errorf("got statuses %+v and %+v, want that a container runs, and the agent's restarts",
			pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses)
	}
}

// A usual pod keeps all labels and annotations.
func TestUsualMetadataOfAPodIsRetained(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Labels, pod.Annotations = map[string]string{}, map[string]string{}
	for i := range 100 {
		pod.Labels[v1.RoleLabel(strings.Repeat("g", v1.MaxNameLength-3)+fmt.Sprintf("%03d", i))] = v1.RoleFollower
		pod.Annotations[fmt.Sprintf("example.org/a-usual-annotation-%d", i)] = strings.Repeat("v", 1000)
	}
	pod.Labels["app"], pod.Annotations["example.org/priority"] = "ledger", "7"
	stripped, _ := stripPod(pod)
	got, _ := stripped.(*corev1.Pod)
	expect.DeepEqualf(t, got.Labels, pod.Labels, "labels")
	if len(got.Annotations) != len(pod.Annotations) || got.Annotations["example.org/priority"] != "7" {
		t.Errorf("got %d annotations, want all %d", len(got.Annotations), len(pod.Annotations))
	}
}

// A user can give an object the label of a group.
func TestMemoryOfLabeledObjectsIsBounded(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	metadata := func() metav1.ObjectMeta {
		m := hostileMetadata()
		m.Labels[v1.LabelGroup] = "ledger"
		m.OwnerReferences = append(m.OwnerReferences,
			metav1.OwnerReference{APIVersion: long, Kind: long, Name: long, UID: types.UID(long), Controller: new(true)})
		return m
	}
	service := func() *corev1.Service {
		s := &corev1.Service{ObjectMeta: metadata()}
		s.Spec.Selector = map[string]string{"app": "ledger"}
		for i := range 10_000 {
			s.Spec.Ports = append(s.Spec.Ports,
				corev1.ServicePort{Name: fmt.Sprint("p", i), Port: 1, AppProtocol: new(fmt.Sprint("a", i))})
			s.Spec.Selector[fmt.Sprint("l", i)] = "v"
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprint("10.0.0.", i))
		}
		return s
	}
	slice := func() *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metadata()}
		for i := range 1000 {
			s.Endpoints = append(s.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{fmt.Sprint("10.0.0.", i)}, NodeName: new(strings.Repeat("n", 253))})
			s.Ports = append(s.Ports,
				discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), AppProtocol: new(strings.Repeat("a", 316))})
		}
		return s
	}
	largeEndpoint := func() *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metadata()}
		s.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}, DeprecatedTopology: map[string]string{"zone": long}},
		}
		return s
	}
	const most = 16 << 10
	for name, size := range map[string]int{
		"Service": retained(t, stripService, service()), "EndpointSlice": retained(t, stripEndpointSlice, slice()),
		"EndpointSlice with a large endpoint": retained(t, stripEndpointSlice, largeEndpoint()),
	} {
		t.Logf("%s: %d bytes", name, size)
		expect.AtMostf(t, size, most, "%s: bytes", name)
	}
}

// All names have the maximum length.
func TestMemoryOfTheLargestGroup(t *testing.T) {
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}}
	list := &v1.MemberList{Previous: &v1.PreviousList{}}
	for i := range v1.MaxMembers {
		m := v1.Member{Pod: strings.Repeat("n", 249) + fmt.Sprintf("%04d", i), Priority: 1}
		group.Spec.Members = append(group.Spec.Members, m)
		list.Members, list.Previous.Members = append(list.Members, m), append(list.Previous.Members, m)
		group.Status.Processes = append(group.Status.Processes, v1.Process{
			Pod: m.Pod, Node: fmt.Sprintf("ip-10-0-%d.eu-west-1.compute.internal", i), Zone: fmt.Sprint("eu-west-1-", i),
		})
	}
	group.Status.Protocol.MemberList = list
	size := retained(t, stripGroup, group)
	for _, pod := range membersOf(group) {
		size += 2*16 + 2*len(group.Namespace+"/"+pod) + 100 // In the index.
	}
	t.Logf("%d bytes", size)
	expect.AtMostf(t, size, 300<<10, "bytes of the largest group")
}

func TestMetadataOfAGroupIsBounded(t *testing.T) {
	hostile := func() *v1.ElectionGroup {
		group := &v1.ElectionGroup{ObjectMeta: hostileMetadata()}
		group.Annotations[v1.AnnotationConfirmStopped] = "ledger-0/u"
		group.Generation = 7
		return group
	}
	expect.AtMostf(t, retained(t, stripGroup, hostile()), 8<<10, "bytes of a group without members")
	stripped, _ := stripGroup(hostile())
	if group, _ := stripped.(*v1.ElectionGroup); group.Annotations[v1.AnnotationConfirmStopped] != "ledger-0/u" ||
		group.Generation != 7 {
		t.Errorf("got annotations %v and generation %d, want the confirmation, and 7", group.Annotations, group.Generation)
	}
}

// Any user who may create pods can name thousands of groups in one. Each would take up memory
// in the index, and cause a reconcile whenever the pod changes.
func TestPodOfManyGroupsIsIndexedByFew(t *testing.T) {
	const many = 20000
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("g%d", i)
	}
	annotated := &corev1.Pod{}
	annotated.Annotations = map[string]string{v1.AnnotationGroups: strings.Join(names, ",")}
	labeled := &corev1.Pod{}
	labeled.Annotations, labeled.Labels = map[string]string{v1.AnnotationGroups: "zebra"}, map[string]string{}
	held := &corev1.Pod{}
	held.Annotations = map[string]string{v1.AnnotationGroups: "zebra"}
	for _, name := range names {
		labeled.Labels[v1.RoleLabel(name)] = v1.RoleFollower
		held.Finalizers = append(held.Finalizers, v1.StopFinalizer(name))
	}
	for name, pod := range map[string]*corev1.Pod{"annotation": annotated, "labels": labeled, "finalizers": held} {
		stripped, err := stripPod(pod)
		must.Succeed(t, err)
		cached, _ := stripped.(*corev1.Pod)
		groups := GroupsInPod(cached)
		expect.AtMostf(t, len(groups), maxIndexedGroups, "%s: groups", name)
		if name != "annotation" && !slices.Contains(groups, "zebra") {
			t.Errorf("%s: got no group that the annotation names, want it beside the others", name)
		}
		expect.EqualSlicesf(t, GroupsInPod(cached), groups, "%s: groups the second time (an index must be stable)", name)
	}
}
