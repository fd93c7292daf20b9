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

// Cache is what the manager's cache must be made with. All pods and nodes of the
// cluster are in it, so they are stripped to what decisions are made from. Of
// what a group owns, only that.
func Cache() cache.Options {
	labelled, err := labels.NewRequirement(v1.LabelGroup, selection.Exists, nil)
	if err != nil {
		panic(err) // The label's key is a constant.
	}
	ours := cache.ByObject{Label: labels.NewSelector().Add(*labelled)}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                {Transform: stripPod},
			&corev1.Node{}:               {Transform: stripNode},
			&corev1.ConfigMap{}:          ours,
			&corev1.Service{}:            ours,
			&discoveryv1.EndpointSlice{}: ours,
		},
	}
}

// bare is what is kept of the metadata of an object of others.
func bare(m *metav1.ObjectMeta) metav1.ObjectMeta {
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
	kept := &corev1.Pod{ObjectMeta: bare(&pod.ObjectMeta)}
	kept.Annotations = shortened(pod.Annotations)
	kept.Spec.NodeName = pod.Spec.NodeName
	kept.Spec.HostNetwork = pod.Spec.HostNetwork
	if membership.HasAgent(pod) {
		kept.Spec.InitContainers = []corev1.Container{{Name: v1.AgentContainer}}
	}
	kept.Status.Phase = pod.Status.Phase
	kept.Status.PodIP = pod.Status.PodIP
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.Name == v1.AgentContainer {
			kept.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: status.Name, RestartCount: status.RestartCount, Started: status.Started,
			}}
		}
	}
	return kept, nil
}

// annotationMax is more than any priority needs, which is all that an annotation
// of the user's own choice can have to tell us. What is longer stays wrong.
const annotationMax = 32

func shortened(annotations map[string]string) map[string]string {
	kept := make(map[string]string, len(annotations))
	for key, value := range annotations {
		if len(value) > annotationMax && key != v1.AnnotationGroups {
			// A copy: a part of it would keep all of it in memory.
			value = strings.Clone(value[:annotationMax])
		}
		kept[key] = value
	}
	return kept
}

func stripNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	kept := &corev1.Node{ObjectMeta: bare(&node.ObjectMeta)}
	kept.Spec.Unschedulable = node.Spec.Unschedulable
	return kept, nil
}

// agentLife changes when the pod's agent has been started again.
func agentLife(pod *corev1.Pod) int32 {
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.Name == v1.AgentContainer {
			life := 2 * status.RestartCount
			if status.Started != nil && *status.Started {
				life++
			}
			return life
		}
	}
	return 0
}
