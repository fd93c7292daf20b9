package controllers

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/inject"
)

// retained returns how many bytes the cache retains of an object, and expects that it retains
// the same if it strips the object again.
func retained[T any](t *testing.T, strip func(any) (any, error), object func() T) uint64 {
	t.Helper()
	const copies = 20
	kept := make([]any, copies)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range kept {
		var err error
		if kept[i], err = strip(object()); err != nil {
			t.Fatal(err)
		}
	}
	size := (max(heap(), before) - before) / copies
	again, err := strip(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(kept[0], again) {
		t.Errorf("got another object when it was stripped again: %.300v, want %.300v", again, kept[0])
	}
	return size
}

// hostileMetadata is as large as the API server accepts: it limits annotations to 256 KiB, and
// an object to 1.5 MiB.
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
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "K", Name: fmt.Sprint("o", i), UID: "u"})
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: &metav1.FieldsV1{Raw: make([]byte, 300_000)}}}
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
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Ports: []corev1.ContainerPort{{Name: name, ContainerPort: 1}, {Name: "x" + name, ContainerPort: 2}}})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(name)})
		}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: v1.AgentContainer, RestartCount: 3}}
		return pod
	}
	const most = 128 << 10
	size := retained(t, stripPod, hostile)
	t.Logf("%d bytes", size)
	if size > most {
		t.Errorf("got %d bytes of a pod, want at most %d", size, most)
	}
	stripped, _ := stripPod(hostile())
	pod, _ := stripped.(*corev1.Pod)
	if pod.Labels[v1.RoleLabel(groups[99])] != v1.RoleFollower || pod.Annotations[v1.AnnotationGroups] == "" {
		t.Error("got a pod without its groups or their role labels, want both")
	}
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil || pod.Status.InitContainerStatuses[0].RestartCount != 3 {
		t.Errorf("got statuses %+v and %+v, want that a container runs, and the agent's restarts", pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses)
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
	if !reflect.DeepEqual(got.Labels, pod.Labels) {
		t.Errorf("got %d labels, want all %d", len(got.Labels), len(pod.Labels))
	}
	if len(got.Annotations) != len(pod.Annotations) || got.Annotations["example.org/priority"] != "7" {
		t.Errorf("got %d annotations, want all %d", len(got.Annotations), len(pod.Annotations))
	}
}
