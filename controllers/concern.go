package controllers

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/membership"
)

// The indexes of the cache.
const (
	// podsByGroup finds the pods that name a group, or have its role label.
	podsByGroup = "group"
	// podsByNode finds the pods on a node that name any group.
	podsByNode = "node"
	// groupsByMember finds the groups that have a pod on a list or in the spec.
	groupsByMember = "member"
)

func index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object  client.Object
		field   string
		extract client.IndexerFunc
	}{
		{&corev1.Pod{}, podsByGroup, of(groupsOfPod)},
		{&corev1.Pod{}, podsByNode, of(nodeOfMember)},
		{&v1.ElectionGroup{}, groupsByMember, of(membersOf)},
	} {
		if err := indexer.IndexField(ctx, i.object, i.field, i.extract); err != nil {
			return err
		}
	}
	return nil
}

func of[T client.Object](extract func(T) []string) client.IndexerFunc {
	return func(object client.Object) []string {
		if typed, ok := object.(T); ok {
			return extract(typed)
		}
		return nil
	}
}

// groupsOfPod are the groups that a pod names, and those whose role label it has.
func groupsOfPod(pod *corev1.Pod) []string {
	groups := membership.GroupsOf(pod)
	for key := range pod.Labels {
		if group, ok := strings.CutPrefix(key, v1.RoleLabelPrefix); ok {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

func nodeOfMember(pod *corev1.Pod) []string {
	if pod.Spec.NodeName == "" || len(membership.GroupsOf(pod)) == 0 {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

func membersOf(group *v1.ElectionGroup) []string {
	var pods []string
	add := func(members []v1.Member) {
		for _, m := range members {
			pods = append(pods, m.Pod)
		}
	}
	add(group.Spec.Members)
	if list := group.Status.MemberList; list != nil {
		add(list.Members)
		if list.Previous != nil {
			add(list.Previous.Members)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// ofPod are the groups that have to be looked at when a pod has changed.
func (o *operator) ofPod(ctx context.Context, object client.Object) []reconcile.Request {
	var groups []string
	if pod, ok := object.(*corev1.Pod); ok {
		groups = groupsOfPod(pod)
	}
	pod := client.ObjectKeyFromObject(object)
	groups = append(groups, o.streams.Groups(pod)...)
	var declaring v1.ElectionGroupList
	err := o.cache.List(ctx, &declaring, client.InNamespace(pod.Namespace), client.MatchingFields{groupsByMember: pod.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		o.log.Error(err, "the groups of a pod can't be found", "pod", pod)
	}
	for i := range declaring.Items {
		groups = append(groups, declaring.Items[i].Name)
	}
	slices.Sort(groups)
	var requests []reconcile.Request
	for _, group := range slices.Compact(groups) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: group}})
	}
	return requests
}

// ofNode are the groups of the pods on a node.
func (o *operator) ofNode(ctx context.Context, node client.Object) []reconcile.Request {
	var pods corev1.PodList
	err := o.cache.List(ctx, &pods, client.MatchingFields{podsByNode: node.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		o.log.Error(err, "the pods of a node can't be found", "node", node.GetName())
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		for _, group := range membership.GroupsOf(&pods.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pods.Items[i].Namespace, Name: group}})
		}
	}
	return requests
}

// owned is the group that an object of ours belongs to.
func owned(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: object.GetNamespace(), Name: object.GetLabels()[v1.LabelGroup],
	}}}
}

// changed leaves out what differs in nothing that was kept of it.
func changed[T any, P interface {
	*T
	client.Object
}](same func(before, after P) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(P)
		if !ok {
			return true
		}
		after, ok := e.ObjectNew.(P)
		return !ok || !same(before, after)
	}}
}

func samePod(before, after *corev1.Pod) bool {
	old := *before
	old.ResourceVersion = after.ResourceVersion
	return equality.Semantic.DeepEqual(&old, after)
}

func sameNode(before, after *corev1.Node) bool {
	old := *before
	old.ResourceVersion = after.ResourceVersion
	return equality.Semantic.DeepEqual(&old, after)
}
