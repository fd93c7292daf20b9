package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// groupsOfPod maps a pod to the groups that a change of it may affect.
func (r *Reconciler) groupsOfPod(ctx context.Context, object client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(object)
	requests := r.groupsWithMember(ctx, key)
	for _, group := range append(cache.GroupsInPod(object), r.agents.Groups(key)...) {
		requests = append(requests, requestFor(key.Namespace, group))
	}
	if key.Namespace == r.options.Namespace && v1.IsWitness(key.Name) {
		requests = append(requests, r.groupsWithMember(ctx, types.NamespacedName{Name: key.Name})...)
	}
	return requests
}

// groupsWithMember returns the groups that have a pod in a member list or in the spec: those of its namespace, or all
// if that is "".
func (r *Reconciler) groupsWithMember(ctx context.Context, pod types.NamespacedName) (found []reconcile.Request) {
	var groups v1.ElectionGroupList
	err := r.cached.List(ctx, &groups, client.InNamespace(pod.Namespace),
		client.MatchingFields{cache.GroupsByMember: pod.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		r.log.Error(err, "cannot list groups of pod", "pod", pod)
	}
	for i := range groups.Items {
		found = append(found, requestFor(groups.Items[i].Namespace, groups.Items[i].Name))
	}
	return found
}

// groupsOfNode maps a node to the groups of its pods.
func (r *Reconciler) groupsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	if until, ok := node.GetAnnotations()[v1.AnnotationEvacuateUntil]; ok {
		if _, err := time.Parse(time.RFC3339, until); err != nil {
			r.log.Info(
				"node has an invalid annotation, which has no effect: it must be a time in RFC 3339, such as 2026-11-25T19:20:00Z",
				"node", node.GetName(), "annotation", v1.AnnotationEvacuateUntil, "value", until)
		}
	}
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.MatchingFields{cache.PodsByNode: node.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		r.log.Error(err, "cannot list pods of node", "node", node.GetName())
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		for _, group := range membership.GroupsOf(&pods.Items[i]) {
			requests = append(requests, requestFor(pods.Items[i].Namespace, group))
		}
	}
	return requests
}

// groupOfObject maps an object that the operator wrote to the group that it belongs to.
func groupOfObject(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{requestFor(object.GetNamespace(), object.GetLabels()[v1.LabelGroup])}
}

func requestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// changed filters out updates that change nothing of what the cache retains.
func changed[T any, P objectOf[T]](same func(before, after P) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(P)
		if !ok {
			return true
		}
		after, ok := e.ObjectNew.(P)
		return !ok || !same(before, after)
	}}
}

// sameContent reports whether two versions of an object differ in nothing else.
func sameContent[T any, P objectOf[T]](before, after P) bool {
	old := *before
	P(&old).SetResourceVersion(after.GetResourceVersion())
	return equality.Semantic.DeepEqual(P(&old), after)
}
