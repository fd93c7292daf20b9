package decide

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Label is the role label that a pod has to get; "" removes it.
type Label struct {
	Pod  *corev1.Pod
	Role string
}

// labels returns the labels that pods don't have yet. Demotions are those of former coordinators. The next coordinator
// comes before followers, because there may be more of them than requests at a time.
func (s *step) labels(roles map[string]string) (demotions, others []Label) {
	label := v1.RoleLabel(s.Group.Name)
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		pod, role := s.Pods[name], roles[name]
		switch {
		case pod == nil || v1.IsWitness(name) || HasRole(pod, label, role):
		case role == v1.RoleCoordinator:
			others = slices.Insert(others, 0, Label{pod, role})
		case pod.Labels[label] == v1.RoleCoordinator:
			demotions = append(demotions, Label{pod, role})
		default:
			others = append(others, Label{pod, role})
		}
	}
	return demotions, others
}

// HasRole reports whether a pod has a role label and the deletion cost that follows from all of its roles. When two of
// them change at once, neither of the requests may change the cost.
func HasRole(pod *corev1.Pod, label, role string) bool {
	_, change := DeletionCost(pod, label, role)
	return pod.Labels[label] == role && !change
}

// DeletionCost returns the value of the annotation that makes a Deployment delete other pods before a coordinator, or
// nil if a pod that was one has to lose it, when a role label changes. It changes no value that somebody else has set.
func DeletionCost(pod *corev1.Pod, label, role string) (value any, change bool) {
	leads := role == v1.RoleCoordinator
	for key, other := range pod.Labels {
		leads = leads || key != label && other == v1.RoleCoordinator && strings.HasPrefix(key, v1.RoleLabelPrefix)
	}
	_, ofDeployment := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	cost, set := pod.Annotations[corev1.PodDeletionCost]
	switch {
	case leads && !set && ofDeployment:
		return v1.CoordinatorDeletionCost, true
	case !leads && cost == v1.CoordinatorDeletionCost:
		return nil, true
	}
	return nil, false
}
