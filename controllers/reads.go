package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// objectOf is a pointer to the struct of an object.
type objectOf[T any] interface {
	*T
	client.Object
}

// addAgent adds the agent of a pod. Groups connect to their witnesses.
func (r *Reconciler) addAgent(f *facts.Facts, pod *corev1.Pod) {
	if v1.IsWitness(pod.Name) && membership.IsFollowed(pod) {
		r.followAgent(pod)
	}
	if agent, ok := r.agents.Agent(client.ObjectKeyFromObject(pod), pod.UID, f.Group.Name); ok {
		f.Agents[pod.Name] = agent
	}
}

// followAgent keeps a stream open to the agent of a pod.
func (r *Reconciler) followAgent(pod *corev1.Pod) {
	r.agents.Follow(agents.Agent{
		Pod: client.ObjectKeyFromObject(pod), UID: pod.UID, Witness: v1.IsWitness(pod.Name),
		Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(control.OperatorPort)),
	}, agentIncarnation(pod))
}

// agentIncarnation returns a number that changes whenever the pod's agent restarts.
func agentIncarnation(pod *corev1.Pod) int32 {
	status := membership.AgentStatus(pod)
	incarnation := 2 * status.RestartCount
	if status.Started != nil && *status.Started {
		incarnation++
	}
	return incarnation
}

// podsOf returns the pods of the cache that name a group, or have its role label or finalizer.
func (r *Reconciler) podsOf(ctx context.Context, group types.NamespacedName) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := r.cached.List(ctx, &pods, client.InNamespace(group.Namespace),
		client.MatchingFields{cache.PodsByGroup: group.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the pods of the group: %w", err)
	}
	return pods.Items, nil
}

// podKey returns the name by which the API server has a member of a group: a witness is in the operator's namespace.
func (r *Reconciler) podKey(group *v1.ElectionGroup, name string) types.NamespacedName {
	if v1.IsWitness(name) {
		return types.NamespacedName{Namespace: r.options.Namespace, Name: name}
	}
	return types.NamespacedName{Namespace: group.Namespace, Name: name}
}

// addPods adds pods of the cache, and the nodes and agents of all pods.
func (r *Reconciler) addPods(ctx context.Context, f *facts.Facts, names []string) error {
	for _, name := range names {
		if f.Pods[name] != nil {
			continue
		}
		var pod corev1.Pod
		err := r.cached.Get(ctx, r.podKey(f.Group, name), &pod, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read pod %s: %w", name, err)
		}
		if err == nil {
			f.Pods[name] = membership.AsMember(&pod, f.Group)
		}
	}
	for _, pod := range f.Pods {
		r.addAgent(f, pod)
		if err := r.addNode(ctx, f, pod); err != nil {
			return err
		}
	}
	return nil
}

// addNode adds the node of a pod.
func (r *Reconciler) addNode(ctx context.Context, f *facts.Facts, pod *corev1.Pod) error {
	name := pod.Spec.NodeName
	if name == "" || f.Nodes[name] != nil {
		return nil
	}
	var node corev1.Node
	err := r.cached.Get(ctx, types.NamespacedName{Name: name}, &node, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	if err == nil {
		f.Nodes[name] = &node
	}
	return nil
}

// getObject reads an object of a kind of which the cache has only those with the
// operator's label. An object that isn't in the cache may belong to another owner:
// only then does getObject query the API server. It returns nil if there is none.
func getObject[T any, P objectOf[T]](ctx context.Context, r *Reconciler, namespace, name string) (P, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	object := P(new(T))
	err := r.writer.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		object = P(new(T))
		err = r.live.Get(ctx, key, object)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kindOf(object), name, err)
	}
	return object, nil
}

// errStale is a conflict: the cache is behind.
func errStale(object client.Object) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: kindOf(object)}, object.GetName(),
		errors.New("the cache is behind"))
}

// confirm returns a conflict if the spec is another one than in the cache, or the group has been deleted.
func (r *Reconciler) confirm(ctx context.Context, group *v1.ElectionGroup) error {
	now := &v1.ElectionGroup{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(group), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the group: %w", err)
	}
	if err != nil || now.UID != group.UID || now.Generation != group.Generation || now.DeletionTimestamp != nil {
		return errStale(group)
	}
	return nil
}

// readSame reads an object from the API server: the cache doesn't have all of it. It returns a conflict if that isn't
// the version that the decision is about.
func (r *Reconciler) readSame(ctx context.Context, have, into client.Object) error {
	err := r.live.Get(ctx, client.ObjectKeyFromObject(have), into)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s %s: %w", kindOf(have), have.GetName(), err)
	}
	if err != nil || into.GetUID() != have.GetUID() || into.GetResourceVersion() != have.GetResourceVersion() {
		return errStale(have)
	}
	return nil
}

// kindOf returns the kind of an object, for messages.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }
