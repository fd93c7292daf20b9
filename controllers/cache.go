package controllers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/inject"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// Cache returns the options that the manager's cache must be created with. The cache
// has all pods and nodes of the cluster, stripped to the fields that decisions use, and
// of other kinds only the objects with the operator's label. If there are namespaces, the
// cache has only the objects in them.
func Cache(namespaces ...string) cache.Options {
	labeled, err := labels.NewRequirement(v1.LabelGroup, selection.Exists, nil)
	if err != nil {
		panic(err) // The label's key is a constant.
	}
	ofGroups := cache.ByObject{Label: labels.NewSelector().Add(*labeled)}
	watched := map[string]cache.Config{}
	for _, namespace := range namespaces {
		watched[namespace] = cache.Config{}
	}
	return cache.Options{
		DefaultNamespaces: watched,
		DefaultTransform:  cache.TransformStripManagedFields(),
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

// agentOnly is shared by the pods of the cache, whose objects nobody changes. A container takes
// more than 400 bytes.
var agentOnly = []corev1.Container{{Name: v1.AgentContainer}}

func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Pod{ObjectMeta: stripMetadata(&pod.ObjectMeta)}
	stripped.Annotations = stripAnnotations(pod.Annotations)
	stripped.Finalizers = slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool { return !strings.HasPrefix(f, v1.StopFinalizerPrefix) })
	stripped.Spec.NodeName = pod.Spec.NodeName
	stripped.Spec.HostNetwork = pod.Spec.HostNetwork
	stripped.Status.Phase = pod.Status.Phase
	stripped.Status.PodIP = pod.Status.PodIP
	if membership.HasAgent(pod) {
		stripped.Status.Conditions = stripConditions(pod.Status.Conditions)
		stripped.Spec.InitContainers = agentOnly
		stripped.Spec.Containers = stripPorts(pod)
		stripped.Status.InitContainerStatuses = stripContainers(pod.Status.InitContainerStatuses)
		stripped.Status.ContainerStatuses = stripContainers(pod.Status.ContainerStatuses)
	}
	return stripped, nil
}

// stripContainers retains which containers run. Of the agent, it also retains whether
// it has restarted.
func stripContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	stripped := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		from, to := &statuses[i], &stripped[i]
		if from.State.Running != nil {
			to.State.Running = &corev1.ContainerStateRunning{}
		}
		if from.State.Terminated != nil {
			to.State.Terminated = &corev1.ContainerStateTerminated{}
		}
		if from.Name == v1.AgentContainer {
			to.Name, to.RestartCount, to.Started = from.Name, from.RestartCount, from.Started
		}
	}
	return stripped
}

// stripConditions retains whether a pod is ready.
func stripConditions(conditions []corev1.PodCondition) (stripped []corev1.PodCondition) {
	for _, c := range conditions {
		if c.Type == corev1.PodReady {
			stripped = append(stripped, corev1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	return stripped
}

// stripPorts retains the ports with names, which a Service may refer to, as those of one container.
func stripPorts(pod *corev1.Pod) []corev1.Container {
	var named []corev1.ContainerPort
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, p := range c.Ports {
			if p.Name != "" {
				named = append(named, corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
			}
		}
	}
	if named == nil {
		return nil
	}
	return []corev1.Container{{Ports: named}}
}

// maxAnnotation is more than any priority or value of spec.priorityFrom.order needs. A user
// may choose the annotation that priorities are read from, so the cache retains the
// beginning of all annotations. A longer value is invalid, and stays so when it is cut.
const maxAnnotation = 64

func stripAnnotations(annotations map[string]string) map[string]string {
	stripped := make(map[string]string, len(annotations))
	for key, value := range annotations {
		switch {
		case key == v1.AnnotationGroups || key == v1.AnnotationSelectedBy:
			if namesTooManyGroups(value) {
				value = ""
			}
		case len(value) > maxAnnotation:
			// Clone: a substring would retain the whole value in memory.
			value = strings.Clone(value[:maxAnnotation])
		}
		stripped[key] = value
	}
	return stripped
}

// namesTooManyGroups reports whether a pod names more groups than its agent can be in: it gets
// no certificate. An annotation has room for tens of thousands of names. Each of them would take
// up memory in the index, and cause work whenever the pod changes, at the cost of other users.
func namesTooManyGroups(annotation string) bool {
	const longest = inject.MaxGroups * (v1.MaxNameLength + len(", "))
	return strings.Count(annotation, ",") >= inject.MaxGroups || len(annotation) > longest
}

func stripNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Node{ObjectMeta: stripMetadata(&node.ObjectMeta)}
	stripped.Spec.Unschedulable = node.Spec.Unschedulable
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			stripped.Spec.Taints = append(stripped.Spec.Taints, corev1.Taint{Key: taint.Key})
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			stripped.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return stripped, nil
}
