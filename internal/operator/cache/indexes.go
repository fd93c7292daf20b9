package cache

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// The indexes of the cache.
const (
	// PodsByGroup finds the pods that name a group, or have its role label or finalizer.
	PodsByGroup = "group"
	// PodsByNode finds the pods on a node that name any group.
	PodsByNode = "node"
	// GroupsByMember finds the groups that have a pod in a member list or in the spec.
	GroupsByMember = "member"
)

// AddIndexes adds the indexes to a cache.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object  client.Object
		field   string
		extract client.IndexerFunc
	}{
		{&corev1.Pod{}, PodsByGroup, GroupsInPod},
		{&corev1.Pod{}, PodsByNode, nodeOfMember},
		{&v1.ElectionGroup{}, GroupsByMember, membersOf},
	} {
		if err := indexer.IndexField(ctx, i.object, i.field, i.extract); err != nil {
			return err
		}
	}
	return nil
}

// maxIndexedGroups bounds the groups by which a pod is found: those that it names, and as many
// of which it has a label or a finalizer. A user can give a pod any number of these.
const maxIndexedGroups = 2 * inject.MaxGroups

// GroupsInPod returns the groups that a pod names, and those whose role label or finalizer it has.
func GroupsInPod(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	groups := membership.GroupsOf(pod)
	var marked []string
	for key := range pod.Labels {
		if group, ok := strings.CutPrefix(key, v1.RoleLabelPrefix); ok {
			marked = append(marked, group)
		}
	}
	for _, finalizer := range pod.Finalizers {
		if group, ok := strings.CutPrefix(finalizer, v1.StopFinalizerPrefix); ok {
			marked = append(marked, group)
		}
	}
	slices.Sort(marked)
	marked = slices.Compact(marked)
	groups = append(groups, marked[:min(len(marked), max(0, maxIndexedGroups-len(groups)))]...)
	slices.Sort(groups)
	return slices.Compact(groups)
}

// nodeOfMember returns the node of a pod that names any group.
func nodeOfMember(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || len(membership.GroupsOf(pod)) == 0 {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// membersOf returns the pods by which a group is found.
func membersOf(object client.Object) []string {
	if group, ok := object.(*v1.ElectionGroup); ok {
		return membership.MembersOf(group)
	}
	return nil
}
