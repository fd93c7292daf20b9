package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
)

// refusedError means that the fault wasn't injected, for a reason that isn't a failure.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

// injection is a fault that was injected.
type injection struct {
	// at is the time just before the fault.
	at time.Time
	// undo undoes a fault that is held. It is nil for other faults.
	undo func(context.Context) error
	// hold is how long the fault lasts, if no election ends it.
	hold time.Duration
	// recovered reports whether what the fault broke, beside the group, works again. It is nil if there is nothing else.
	recovered func(context.Context) bool
}

// inject injects a fault.
func (r *Run) inject(ctx context.Context, kind string, targets []chaos.PodState) (injection, error) {
	if reason := r.notReplaced(kind, targets); reason != "" {
		return injection{}, &refusedError{reason}
	}
	switch kind {
	case chaos.Pod:
		return r.deletePods(ctx, targets)
	case chaos.ForcePod, chaos.Two, chaos.All:
		return r.deletePods(ctx, targets, client.GracePeriodSeconds(0))
	case chaos.Evict:
		return r.evict(ctx, targets[:1])
	case chaos.Rollout:
		return r.rollout(ctx, targets[0])
	case chaos.Cordon:
		return r.cordon(ctx, targets[0].Node)
	case chaos.Drain:
		return r.drain(ctx, targets)
	case chaos.Manager:
		return r.deleteManager(ctx)
	case chaos.APIServer:
		return r.disconnectAPIServer(ctx)
	}
	return r.onMachine(ctx, kind, targets[0])
}

// notReplaced returns why a fault of this kind would remove a pod for ever, or "".
func (r *Run) notReplaced(kind string, targets []chaos.PodState) string {
	if !slices.Contains([]string{chaos.Pod, chaos.ForcePod, chaos.Two, chaos.All, chaos.Evict, chaos.Drain}, kind) {
		return ""
	}
	for _, p := range targets {
		if pod := r.observer.pod(p.UID); pod != nil && metav1.GetControllerOf(pod) == nil {
			return "pod " + p.Pod + " has no controller that would replace it"
		}
	}
	return ""
}

func (r *Run) object(p chaos.PodState) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Subject.namespace(), Name: p.Pod, UID: types.UID(p.UID)}}
}

// deletePods deletes pods at the same time.
func (r *Run) deletePods(ctx context.Context, targets []chaos.PodState,
	options ...client.DeleteOption,
) (injection, error) {
	done := injection{at: time.Now()}
	failures := make(chan error, len(targets))
	for _, p := range targets {
		go func() {
			failures <- r.Client.Delete(ctx, r.object(p), append(options, client.Preconditions{UID: new(types.UID(p.UID))})...)
		}()
	}
	var err error
	for range targets {
		err = errors.Join(err, client.IgnoreNotFound(<-failures))
	}
	return done, err
}

// evict evicts pods. A disruption budget may refuse that. If it only refuses those that follow the coordinator's, that
// is a fault.
func (r *Run) evict(ctx context.Context, targets []chaos.PodState) (injection, error) {
	done := injection{at: time.Now()}
	for i, p := range targets {
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(p.UID)}}
		err := r.Client.SubResource("eviction").Create(ctx, r.object(p), eviction)
		if apierrors.IsTooManyRequests(err) && i > 0 {
			return done, nil
		}
		if apierrors.IsTooManyRequests(err) {
			return done, &refusedError{fmt.Sprintf("the eviction of %s: %s", p.Pod, command.SingleLine(err))}
		}
		if client.IgnoreNotFound(err) != nil {
			return done, err
		}
	}
	return done, nil
}

// cordon makes a node unschedulable until it is undone.
func (r *Run) cordon(ctx context.Context, node string) (injection, error) {
	set := func(ctx context.Context, to bool) error {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, to))
		return r.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)
	}
	var before corev1.Node
	if err := r.Client.Get(ctx, client.ObjectKey{Name: node}, &before); err != nil {
		return injection{}, err
	}
	if before.Spec.Unschedulable {
		return injection{}, &refusedError{"node " + node + " is cordoned already"}
	}
	done := injection{at: time.Now(), undo: func(ctx context.Context) error { return set(ctx, false) }}
	return done, set(ctx, true)
}

// drain cordons the coordinator's node, and evicts the group's pods from it.
func (r *Run) drain(ctx context.Context, targets []chaos.PodState) (injection, error) {
	done, err := r.cordon(ctx, targets[0].Node)
	if err != nil {
		return done, err
	}
	_, err = r.evict(ctx, targets)
	return done, err
}

// rollout restarts the pods of the coordinator's owner, as kubectl rollout restart does.
func (r *Run) rollout(ctx context.Context, p chaos.PodState) (injection, error) {
	owner, err := r.owner(ctx, p)
	if err != nil {
		return injection{}, err
	}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(owner), owner); err != nil {
		return injection{}, err
	}
	if reason := notRestarted(owner); reason != "" {
		return injection{}, &refusedError{reason}
	}
	patch := fmt.Appendf(nil,
		`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		time.Now().Format(time.RFC3339Nano))
	done := injection{at: time.Now(), recovered: func(ctx context.Context) bool { return r.isRolledOut(ctx, owner) }}
	return done, r.Client.Patch(ctx, owner, client.RawPatch(types.StrategicMergePatchType, patch))
}

// owner returns the StatefulSet, Deployment or DaemonSet that owns a pod.
func (r *Run) owner(ctx context.Context, p chaos.PodState) (client.Object, error) {
	pod := r.observer.pod(p.UID)
	if pod == nil {
		return nil, &refusedError{"pod " + p.Pod + " is gone"}
	}
	reference := metav1.GetControllerOf(pod)
	if reference != nil && reference.Kind == "ReplicaSet" {
		var set appsv1.ReplicaSet
		if err := r.Client.Get(ctx,
			client.ObjectKey{Namespace: r.Subject.namespace(), Name: reference.Name}, &set); err != nil {
			return nil, err
		}
		reference = metav1.GetControllerOf(&set)
	}
	if reference != nil {
		meta := metav1.ObjectMeta{Namespace: r.Subject.namespace(), Name: reference.Name}
		switch reference.Kind {
		case "StatefulSet":
			return &appsv1.StatefulSet{ObjectMeta: meta}, nil
		case "Deployment":
			return &appsv1.Deployment{ObjectMeta: meta}, nil
		case "DaemonSet":
			return &appsv1.DaemonSet{ObjectMeta: meta}, nil
		}
	}
	return nil, &refusedError{"pod " + p.Pod + " has no StatefulSet, Deployment or DaemonSet"}
}

// notRestarted returns why a change of an owner's template doesn't restart all of its pods, or "".
func notRestarted(owner client.Object) string {
	switch o := owner.(type) {
	case *appsv1.StatefulSet:
		strategy := o.Spec.UpdateStrategy
		if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			return "StatefulSet " + o.Name + " has the update strategy OnDelete"
		}
		if u := strategy.RollingUpdate; u != nil && u.Partition != nil && *u.Partition > 0 {
			return fmt.Sprintf("StatefulSet %s only updates pods from partition %d", o.Name, *u.Partition)
		}
	case *appsv1.Deployment:
		if o.Spec.Paused {
			return "Deployment " + o.Name + " is paused"
		}
	case *appsv1.DaemonSet:
		if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			return "DaemonSet " + o.Name + " has the update strategy OnDelete"
		}
	}
	return ""
}

// isRolledOut reports whether all pods of an owner have its latest template.
func (r *Run) isRolledOut(ctx context.Context, owner client.Object) bool {
	if r.Client.Get(ctx, client.ObjectKeyFromObject(owner), owner) != nil {
		return false
	}
	switch o := owner.(type) {
	case *appsv1.StatefulSet:
		return o.Status.ObservedGeneration >= o.Generation && o.Status.UpdateRevision == o.Status.CurrentRevision &&
			o.Status.UpdatedReplicas >= replicas(o.Spec.Replicas)
	case *appsv1.Deployment:
		return o.Status.ObservedGeneration >= o.Generation && o.Status.UpdatedReplicas == o.Status.Replicas &&
			o.Status.UpdatedReplicas >= replicas(o.Spec.Replicas)
	case *appsv1.DaemonSet:
		return o.Status.ObservedGeneration >= o.Generation &&
			o.Status.UpdatedNumberScheduled == o.Status.DesiredNumberScheduled
	}
	return true
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// deleteManager deletes all pods of the operator. They must be replaced before the next fault.
func (r *Run) deleteManager(ctx context.Context) (injection, error) {
	before, err := r.managers(ctx)
	switch {
	case err != nil:
		return injection{}, err
	case len(before) == 0:
		return injection{}, &refusedError{"no pod of the operator runs in namespace " + r.OperatorNamespace}
	}
	done := injection{at: time.Now(), recovered: func(ctx context.Context) bool {
		now, err := r.managers(ctx)
		return err == nil && len(now) >= len(before) && !slices.ContainsFunc(now, func(pod corev1.Pod) bool {
			return !isReady(&pod) || slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID })
		})
	}}
	return done,
		r.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(r.OperatorNamespace), clusteraccess.OperatorLabels)
}

// managers returns the pods of the operator, without those that have finished, such as evicted ones, which nothing
// replaces.
func (r *Run) managers(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.Client.List(ctx, &list, client.InNamespace(r.OperatorNamespace), clusteraccess.OperatorLabels)
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return isFinished(&pod) }), err
}
