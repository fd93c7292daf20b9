package decide

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Label is the role label that a pod has to get; "" removes it. Labels of a later stage wait for those of earlier ones:
// no selector must find two coordinators.
type Label struct {
	Pod   *corev1.Pod
	Role  string
	Stage Stage
}

// Stage orders the labels of an election.
type Stage int

// The former coordinator loses its label first. Followers come last, because there may be more of them than requests at
// a time.
const (
	Demotion Stage = iota
	Promotion
	Others
)

// labels returns the labels that pods don't have yet, in the order of their stages.
func (s *step) labels(roles map[string]string) (all []Label) {
	label := v1.RoleLabel(s.Group.Name)
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		pod, role, stage := s.Pods[name], roles[name], Others
		switch {
		case pod == nil || HasRole(pod, label, role):
			continue
		case role == v1.RoleCoordinator:
			stage = Promotion
		case pod.Labels[label] == v1.RoleCoordinator:
			stage = Demotion
		}
		all = append(all, Label{pod, role, stage})
	}
	slices.SortStableFunc(all, func(a, b Label) int { return int(a.Stage - b.Stage) })
	return all
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
