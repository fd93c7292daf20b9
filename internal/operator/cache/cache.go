// Package cache decides what the operator's informer cache retains of objects, and by what it finds them.
package cache

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// optedIn selects the pods that can have an agent: no other pod gets a certificate.
var optedIn = labels.SelectorFromSet(labels.Set{v1.LabelAgent: v1.AgentEnabled})

// Options returns the options that the manager's cache must be created with. The cache has all groups and nodes of the
// cluster, the pods that have opted in, and of other kinds only the objects with the operator's label. It has only the
// fields that decisions use: tenants can make an object as large as the API server accepts, and the memory of the
// manager must not depend on that (docs/operate.md, Tenants that share an operator).
func Options() ctrlcache.Options {
	labeled, err := labels.NewRequirement(v1.LabelGroup, selection.Exists, nil)
	if err != nil {
		panic(err) // The label's key is a constant.
	}
	ofGroups := func(strip toolscache.TransformFunc) ctrlcache.ByObject {
		return ctrlcache.ByObject{Label: labels.NewSelector().Add(*labeled), Transform: strip}
	}
	return ctrlcache.Options{
		DefaultTransform: ctrlcache.TransformStripManagedFields(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&corev1.Pod{}:                {Label: optedIn, Transform: stripPod},
			&corev1.Node{}:               {Transform: stripNode},
			&v1.ElectionGroup{}:          {Transform: stripGroup},
			&corev1.Service{}:            ofGroups(stripService),
			&discoveryv1.EndpointSlice{}: ofGroups(stripEndpointSlice),
		},
	}
}

// stripMetadata returns the metadata that the cache retains of a pod or node.
func stripMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
		Labels:                     m.Labels,
	}
}

// agentOnly is shared by the pods of the cache, whose objects nobody changes. A container takes more than 400 bytes.
var agentOnly = []corev1.Container{{Name: v1.AgentContainer}}

func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	stripped := &corev1.Pod{ObjectMeta: stripMetadata(&pod.ObjectMeta)}
	stripped.Annotations = stripAnnotations(pod.Annotations)
	stripped.Labels = stripLabels(pod)
	stripped.Finalizers = stripFinalizers(pod.Finalizers)
	stripped.Spec.NodeName = pod.Spec.NodeName
	stripped.Spec.HostNetwork = pod.Spec.HostNetwork
	stripped.Status.Phase = pod.Status.Phase
	stripped.Status.PodIP = pod.Status.PodIP
	if v1.IsWitness(pod.Name) {
		stripped.Status.Conditions = stripConditions(pod.Status.Conditions)
	}
	if membership.HasAgent(pod) {
		if len(pod.Status.PodIPs) > 1 {
			stripped.Status.PodIPs = pod.Status.PodIPs
		}
		stripped.Status.Conditions = stripConditions(pod.Status.Conditions)
		stripped.Spec.InitContainers = agentOnly
		stripped.Spec.Containers = stripPorts(pod)
		stripped.Status.InitContainerStatuses = stripContainers(pod.Status.InitContainerStatuses)
		stripped.Status.ContainerStatuses = stripContainers(pod.Status.ContainerStatuses)
	}
	return stripped, nil
}

// stripContainers retains whether any container runs and, of the agent, also whether it has restarted.
func stripContainers(statuses []corev1.ContainerStatus) (stripped []corev1.ContainerStatus) {
	running := false
	for i := range statuses {
		from := &statuses[i]
		if from.Name == v1.AgentContainer {
			to := corev1.ContainerStatus{Name: from.Name, RestartCount: from.RestartCount, Started: from.Started}
			if from.State.Running != nil {
				to.State.Running = &corev1.ContainerStateRunning{}
			}
			if from.State.Terminated != nil {
				to.State.Terminated = &corev1.ContainerStateTerminated{}
			}
			stripped = append(stripped, to)
		} else if from.State.Running != nil {
			running = true
		}
	}
	if running {
		stripped = append(stripped,
			corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
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

// maxPorts is more than the ports with names of any useful pod.
const maxPorts = 256

// stripPorts retains the ports with names, which a Service may refer to, as those of one container.
func stripPorts(pod *corev1.Pod) []corev1.Container {
	var named []corev1.ContainerPort
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, p := range c.Ports {
			if p.Name != "" && len(named) < maxPorts {
				named = append(named, corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
			}
		}
	}
	if named == nil {
		return nil
	}
	return []corev1.Container{{Ports: named}}
}

// A pod can have a megabyte of labels, and 256 KiB of annotations with tens of thousands of keys.
// The cache retains labels or annotations of at most maxMetadata bytes, where each of them counts
// as entryCost bytes more than its text: that is what it takes in a map.
const (
	maxMetadata = 32 << 10
	entryCost   = 64
)

// stripLabels retains the labels. If there are too many, it retains only that by which the pod has opted in, and
// the role labels of the groups that the pod names, so that no selector matches the pod by its labels.
func stripLabels(pod *corev1.Pod) map[string]string {
	size := 0
	for key, value := range pod.Labels {
		size += entryCost + len(key) + len(value)
	}
	if size <= maxMetadata {
		return pod.Labels
	}
	stripped := map[string]string{}
	if value, ok := pod.Labels[v1.LabelAgent]; ok {
		stripped[v1.LabelAgent] = value
	}
	if groups := v1.GroupsAnnotation(pod.Annotations); !namesTooManyGroups(groups) {
		for group := range v1.GroupNames(groups) {
			if role, ok := pod.Labels[v1.RoleLabel(group)]; ok {
				stripped[v1.RoleLabel(group)] = role
			}
		}
	}
	return stripped
}

// stripFinalizers retains the finalizers of groups, of which a pod can have any number.
func stripFinalizers(finalizers []string) (stripped []string) {
	for _, f := range finalizers {
		if strings.HasPrefix(f, v1.StopFinalizerPrefix) && len(stripped) < maxIndexedGroups {
			stripped = append(stripped, f)
		}
	}
	return stripped
}

// maxAnnotation is more than any priority or value of spec.priorityFrom.order needs. A user
// may choose the annotation that priorities are read from, so the cache retains the
// beginning of all annotations. A longer value is invalid, and stays so when it is cut.
const maxAnnotation = 64

// maxStepDownBy is the length of the longest value of AnnotationStepDownBy that has an effect.
const maxStepDownBy = v1.MaxNameLength + len("/70368744177663 ") + v1.MaxUserName

// stripAnnotations retains the groups that a pod names, and the beginning of other annotations
// unless there are too many.
func stripAnnotations(annotations map[string]string) map[string]string {
	size := 0
	for key, value := range annotations {
		size += entryCost + len(key) + min(len(value), maxAnnotation)
	}
	stripped := map[string]string{}
	for _, key := range []string{v1.AnnotationGroups, v1.AnnotationSelectedBy} {
		if value, ok := annotations[key]; ok {
			if namesTooManyGroups(value) {
				value = ""
			}
			stripped[key] = value
		}
	}
	if cost, ok := annotations[corev1.PodDeletionCost]; ok {
		stripped[corev1.PodDeletionCost] = strings.Clone(cost[:min(len(cost), maxAnnotation)])
	}
	if by, ok := annotations[v1.AnnotationStepDownBy]; ok && len(by) <= maxStepDownBy {
		stripped[v1.AnnotationStepDownBy] = by
	}
	if size > maxMetadata {
		return stripped
	}
	for key, value := range annotations {
		if _, ok := stripped[key]; ok {
			continue
		}
		if len(value) > maxAnnotation {
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
	if until, ok := node.Annotations[v1.AnnotationEvacuateUntil]; ok {
		stripped.Annotations = map[string]string{v1.AnnotationEvacuateUntil: until}
	}
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
