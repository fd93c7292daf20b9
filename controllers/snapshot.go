package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// snapshot has the facts about a group that were gathered for one reconcile.
type snapshot struct {
	key   types.NamespacedName
	group *v1.ElectionGroup
	state *groupState
	// initialStatus is the status as it was read. Writing the status replaces group.
	initialStatus v1.ElectionGroupStatus
	// now is the time after everything below has been read: a wait that begins now
	// begins after the observation that it is about.
	now time.Time
	// deadline is when the next reconcile is due.
	deadline deadline
	// writableAt is when the status may be written that this reconcile left out; zero if it
	// left none out.
	writableAt time.Time

	// pods are by name, and nodes, connections and reports belong to them. Reports of
	// agents without a pod are left out.
	pods  map[string]*corev1.Pod
	nodes map[string]*corev1.Node
	// deleted has when the deletion of pods was requested: see rememberDeleted.
	deleted map[string]time.Time
	// unlisted are pods that membership.Unlisted has found.
	unlisted []string
	// explaining has the names of pods that have no agent, and may be gone by now: see addExplainingPods.
	explaining map[string]bool
	// preferred is the member that the list is to prefer, if the coordinator has to move.
	preferred   string
	connections map[string]agents.Connection
	reports     map[string]agents.AgentReport

	// required are the lowest revisions that agents accept which refused a document because of that.
	required []int64

	// servicesForbidden: the operator may not write Services.
	servicesForbidden bool
	service           *corev1.Service
	endpointSlice     *discoveryv1.EndpointSlice
	// keepsEndpoint: the Service still points at the former coordinator.
	keepsEndpoint bool
}

// gather takes a snapshot of a group.
func (r *Reconciler) gather(ctx context.Context, group *v1.ElectionGroup) (*snapshot, error) {
	key := client.ObjectKeyFromObject(group)
	s := &snapshot{
		key: key, group: group, initialStatus: group.Status, state: r.states.get(key, group.UID), now: time.Now(),
		pods: map[string]*corev1.Pod{}, deleted: map[string]time.Time{}, explaining: map[string]bool{},
		connections: map[string]agents.Connection{}, reports: map[string]agents.AgentReport{},
	}
	reports := r.agents.Reports(key)
	if err := r.gatherPods(ctx, s, reports); err != nil {
		return nil, err
	}
	if err := r.gatherObjects(ctx, s); err != nil {
		return nil, err
	}
	if err := r.confirmMissingPods(ctx, s); err != nil {
		return nil, err
	}
	r.addExplainingPods(ctx, s)
	s.preferred = r.spread.preferred(key)
	for i := range group.Status.History {
		name := group.Status.History[i].Pod
		if at, ok := r.deleted.Get(types.NamespacedName{Namespace: key.Namespace, Name: name}); ok {
			s.deleted[name], _ = at.(time.Time)
		}
	}
	for name, pod := range s.pods {
		if connection, ok := r.connection(pod); ok {
			s.connections[name] = connection
			s.required = append(s.required, r.agents.Outdated(client.ObjectKeyFromObject(pod), key.Name))
		}
		if report, ok := reports[name]; ok && report.UID == pod.UID {
			s.reports[name] = report
		}
	}
	s.now = time.Now()
	return s, nil
}

// connection returns the connection to the agent of a pod. That may still be to an earlier pod of the same name.
func (r *Reconciler) connection(pod *corev1.Pod) (agents.Connection, bool) {
	connection, ok := r.agents.Connection(client.ObjectKeyFromObject(pod))
	if !ok || connection.UID != pod.UID {
		return agents.Connection{}, false
	}
	return connection, true
}

func (r *Reconciler) gatherPods(ctx context.Context, s *snapshot, reports map[string]agents.AgentReport) error {
	var indexed corev1.PodList
	err := r.cached.List(ctx, &indexed, client.InNamespace(s.key.Namespace),
		client.MatchingFields{cache.PodsByGroup: s.key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the pods of the group: %w", err)
	}
	for i := range indexed.Items {
		s.pods[indexed.Items[i].Name] = &indexed.Items[i]
	}
	// The index doesn't find members, or pods whose agents report the group, that don't
	// name it.
	others := cache.MembersOf(s.group)
	for name := range reports {
		others = append(others, name)
	}
	for _, name := range others {
		if s.pods[name] != nil {
			continue
		}
		pod, err := r.cachedPod(ctx, s.key.Namespace, name)
		if err != nil {
			return err
		}
		if pod != nil {
			s.pods[name] = pod
		}
	}
	s.unlisted = membership.Unlisted(s.group, func(name string) *corev1.Pod {
		pod, failed := r.cachedPod(ctx, s.key.Namespace, name)
		if failed != nil {
			err = failed
		}
		return pod
	})
	if err != nil {
		return err
	}
	s.nodes, err = r.nodesOf(ctx, s.pods)
	return err
}

// cachedPod returns a pod of the cache, or nil.
func (r *Reconciler) cachedPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	return pod, nil
}

// addUser reports whether it has found out who asked the coordinator to step down: the annotation of the pod was
// written just before, so the cache may lack it. It asks the API server at most once in a tenure.
func (r *Reconciler) addUser(ctx context.Context, s *snapshot, history []v1.Tenure) bool {
	was := s.group.Status.Coordinator
	unknown := was != nil && was.Term != s.state.userTerm &&
		s.pods[was.Pod] != nil && slices.ContainsFunc(history, func(t v1.Tenure) bool {
		return t.Pod == was.Pod && t.Term == was.Term && t.EndReason == v1.EndStepDown && t.EndedBy == ""
	})
	if !unknown {
		return false
	}
	s.state.userTerm = was.Term
	pod := &corev1.Pod{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(s.pods[was.Pod]), pod)
	if err != nil || v1.StepDownBy(pod.Annotations, s.key.Name, was.Term) == "" {
		return false // An application may have asked for it, and the name isn't necessary.
	}
	s.pods[was.Pod] = pod
	return true
}

// nodesOf returns the nodes of pods by name.
func (r *Reconciler) nodesOf(ctx context.Context, pods map[string]*corev1.Pod) (map[string]*corev1.Node, error) {
	nodes := map[string]*corev1.Node{}
	for _, pod := range pods {
		name := pod.Spec.NodeName
		if name == "" || nodes[name] != nil {
			continue
		}
		var node corev1.Node
		err := r.cached.Get(ctx, types.NamespacedName{Name: name}, &node, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read node %s: %w", name, err)
		}
		if err == nil {
			nodes[name] = &node
		}
	}
	return nodes, nil
}

func (r *Reconciler) gatherObjects(ctx context.Context, s *snapshot) (err error) {
	s.servicesForbidden = !r.services.permitted.Load()
	if s.group.Spec.Service == nil || s.servicesForbidden {
		return nil
	}
	defer func() {
		if apierrors.IsForbidden(err) { // Agents must not wait for the permission.
			r.services.refused.Store(true)
			s.servicesForbidden, s.service, s.endpointSlice, err = true, nil, nil, nil
		}
	}()
	s.service, err = getObject[corev1.Service](ctx, r, s.key.Namespace, s.group.Spec.Service.Name)
	if err != nil {
		return err
	}
	s.endpointSlice, err = getObject[discoveryv1.EndpointSlice](ctx, r, s.key.Namespace,
		membership.EndpointSliceName(s.group))
	return err
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
