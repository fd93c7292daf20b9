package controllers

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// addSelectionController adds the controller that keeps the annotation conclave.dev/selected-by of running pods up to
// date. The webhook writes it when a pod is created. Later, a group may be created, or its selector or the labels of
// the pod may change. The kubelet passes the annotation on to the agent, which obtains a certificate for the groups in
// it.
func (r *Reconciler) addSelectionController(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("selection").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(isBySelection), changed(sameSelection))).
		Watches(&v1.ElectionGroup{}, handler.EnqueueRequestsFromMapFunc(r.podsOfSelection),
			builder.WithPredicates(selectionOfGroup)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: selectionWorkers,
			NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
			) workqueue.TypedRateLimitingInterface[reconcile.Request] {
				q := newQueue(name, limiter)
				r.selection.Store(&q)
				return q
			},
			ReconciliationTimeout: reconcileTimeout,
		}).
		Complete(reconcile.Func(r.reconcileSelection))
}

// selectionWorkers is the number of pods whose annotations are updated at the same time. One takes
// a request for each of up to a hundred groups that the annotation shouldn't name.
const selectionWorkers = 4

func isBySelection(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && membership.BySelection(pod)
}

// sameSelection reports whether two versions of a pod are selected by the same groups.
func sameSelection(before, after *corev1.Pod) bool {
	withoutRoles := func(pod *corev1.Pod) map[string]string {
		labels := maps.Clone(pod.Labels)
		maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, v1.RoleLabelPrefix) })
		return labels
	}
	return before.UID == after.UID && maps.Equal(withoutRoles(before), withoutRoles(after)) &&
		v1.GroupsAnnotation(before.Annotations) == v1.GroupsAnnotation(after.Annotations)
}

// selectionOfGroup filters out events after which a group selects the same pods. When the
// manager starts, it reconciles all pods in any case.
var selectionOfGroup = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1.ElectionGroup)
		after, also := e.ObjectNew.(*v1.ElectionGroup)
		return !ok || !also || before.Generation != after.Generation ||
			!after.DeletionTimestamp.Equal(before.DeletionTimestamp) ||
			!slices.Equal(membership.MembersOf(before), membership.MembersOf(after))
	},
}

// podsOfSelection maps a group to the pods that it selects or that record it.
func (r *Reconciler) podsOfSelection(ctx context.Context, object client.Object) []reconcile.Request {
	group, ok := object.(*v1.ElectionGroup)
	if !ok {
		return nil
	}
	var pods corev1.PodList
	if err := r.cached.List(ctx, &pods, client.InNamespace(group.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		r.log.Error(err, "cannot list pods of namespace", "namespace", group.Namespace)
	}
	takesPart := membership.TakesPart(group)
	var requests []reconcile.Request
	for i := range pods.Items {
		if pod := &pods.Items[i]; membership.BySelection(pod) && (takesPart(pod) || membership.NamesGroup(pod, group.Name)) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return requests
}

// reconcileSelection updates the annotation of a pod.
func (r *Reconciler) reconcileSelection(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if !r.leads() {
		return reconcile.Result{}, nil
	}
	if err := r.cached.Get(ctx, request.NamespacedName, &pod, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !membership.BySelection(&pod) || !membership.HasAgent(&pod) || membership.Finished(&pod) ||
		pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	var groups v1.ElectionGroupList
	if err := r.cached.List(ctx, &groups, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the groups of the namespace: %w", err)
	}
	wanted := membership.SelectingGroups(groups.Items, &pod)
	recorded := membership.GroupsOf(&pod)
	for _, name := range recorded {
		if slices.Contains(wanted, name) {
			continue
		}
		// The webhook reads groups that the cache may not have yet.
		takesPart, err := r.takesPart(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, &pod)
		if err != nil {
			return reconcile.Result{}, err
		}
		if takesPart {
			wanted = append(wanted, name)
		}
	}
	slices.Sort(wanted)
	if slices.Equal(wanted, recorded) {
		return reconcile.Result{}, nil
	}
	if len(wanted) > inject.MaxGroups {
		err := fmt.Errorf("%d groups select the pod, but it can take part in at most %d: name them in its annotation %s",
			len(wanted), inject.MaxGroups, v1.AnnotationGroups)
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	if wait := r.debt(pod.Namespace); wait > 0 {
		return reconcile.Result{RequeueAfter: wait + rand.N(time.Second)}, nil //nolint:gosec // It is no secret.
	}
	return reconcile.Result{}, r.recordSelection(ctx, &pod, wanted)
}

// takesPart asks the API server whether a pod takes part in a group.
func (r *Reconciler) takesPart(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) (bool, error) {
	group := &v1.ElectionGroup{}
	err := r.live.Get(ctx, key, group)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read group %s: %w", key.Name, err)
	}
	return err == nil && group.DeletionTimestamp == nil && membership.TakesPart(group)(pod), nil
}

// recordSelection writes the annotation.
func (r *Reconciler) recordSelection(ctx context.Context, pod *corev1.Pod, groups []string) error {
	patch, err := metadataPatch(pod.UID, nil, map[string]any{v1.AnnotationSelectedBy: strings.Join(groups, ",")})
	if err != nil {
		return err
	}
	exists, err := r.patchPod(ctx, pod, patch, "record the groups of pod")
	if exists && err == nil {
		r.log.Info("recorded the groups that select a pod", "pod", client.ObjectKeyFromObject(pod), "groups", groups)
	}
	return err
}
