package controllers

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// Cache returns the options that the manager's cache must be created with. The cache
// has all pods and nodes of the cluster, stripped to the fields that decisions use, and
// of other kinds only the objects with the operator's label.
func Cache() cache.Options {
	labeled, err := labels.NewRequirement(v1.LabelGroup, selection.Exists, nil)
	if err != nil {
		panic(err) // The label's key is a constant.
	}
	ofGroups := cache.ByObject{Label: labels.NewSelector().Add(*labeled)}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                {Transform: stripPod},
			&corev1.Node{}:               {Transform: stripNode},
			&corev1.ConfigMap{}:          ofGroups,
			&corev1.Service{}:            ofGroups,
			&discoveryv1.EndpointSlice{}: ofGroups,
		},
	}
}

// stripMetadata returns the metadata that the cache retains of a pod or node.
func stripMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: m.Labels,
	}
}

func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Pod{ObjectMeta: stripMetadata(&pod.ObjectMeta)}
	stripped.Annotations = stripAnnotations(pod.Annotations)
	stripped.Spec.NodeName = pod.Spec.NodeName
	stripped.Spec.HostNetwork = pod.Spec.HostNetwork
	if membership.HasAgent(pod) {
		stripped.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer}}
	}
	stripped.Status.Phase = pod.Status.Phase
	stripped.Status.PodIP = pod.Status.PodIP
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.Name == v1.AgentContainer {
			stripped.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: status.Name, RestartCount: status.RestartCount, Started: status.Started,
			}}
		}
	}
	return stripped, nil
}

// maxAnnotation is more than any priority needs. A user may choose the annotation that
// priorities are read from, so the cache retains the beginning of all annotations. A
// longer value is invalid as a priority, and stays so when it is cut.
const maxAnnotation = 32

func stripAnnotations(annotations map[string]string) map[string]string {
	stripped := make(map[string]string, len(annotations))
	for key, value := range annotations {
		if len(value) > maxAnnotation && key != v1.AnnotationGroups {
			// Clone: a substring would retain the whole value in memory.
			value = strings.Clone(value[:maxAnnotation])
		}
		stripped[key] = value
	}
	return stripped
}

func stripNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Node{ObjectMeta: stripMetadata(&node.ObjectMeta)}
	stripped.Spec.Unschedulable = node.Spec.Unschedulable
	return stripped, nil
}
