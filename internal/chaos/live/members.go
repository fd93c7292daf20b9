package live

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// isMember reports whether a pod says that it is a member of a group.
func isMember(pod *corev1.Pod, group string) bool {
	return slices.Contains(slices.Collect(v1.GroupNames(v1.GroupsAnnotation(pod.Annotations))), group)
}

// listMembers returns the pods of a group that haven't finished.
func listMembers(ctx context.Context, c client.Client, group *v1.ElectionGroup) (members []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(group.Namespace), client.MatchingLabels{v1.LabelAgent: v1.AgentEnabled}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if pod := &list.Items[i]; isMember(pod, group.Name) && !isFinished(pod) {
			members = append(members, pod)
		}
	}
	return members, nil
}

// OtherGroups returns the groups that have a pod of this group as a member, too. Faults of its pods concern them as well.
func (r *Run) OtherGroups(ctx context.Context) ([]v1.ElectionGroup, error) {
	members, err := listMembers(ctx, r.Client, r.Group)
	if err != nil {
		return nil, err
	}
	var list v1.ElectionGroupList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Group.Namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(g v1.ElectionGroup) bool {
		return g.Name == r.Group.Name || !slices.ContainsFunc(members, func(pod *corev1.Pod) bool { return isMember(pod, g.Name) })
	}), nil
}
