package live

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
)

// Forward forwards a local port to the agent in a pod.
type Forward func(ctx context.Context, pod types.NamespacedName) (*portforward.Port, error)

// Observer observes a group: its object, its pods, the endpoints of its Service, and the agents.
type Observer struct {
	client  client.WithWatch
	forward Forward
	name    types.NamespacedName

	mu     sync.Mutex
	group  *v1.ElectionGroup
	pods   map[types.UID]*observedPod
	routes map[string][]string // addresses by EndpointSlice
	record *chaos.Record
	// changed has capacity 1. An element means that Await must check its condition.
	changed chan struct{}
	agents  sync.WaitGroup
}

// observedPod is a pod with the observation of its agent.
type observedPod struct {
	*corev1.Pod

	view *chaos.Change
	stop context.CancelFunc
}

// NewObserver returns an observer of this group. It observes nothing before Run.
func NewObserver(c client.WithWatch, forward Forward, group types.NamespacedName) *Observer {
	return &Observer{
		client: c, forward: forward, name: group, pods: map[types.UID]*observedPod{}, routes: map[string][]string{},
		record: &chaos.Record{Addresses: map[string][]string{}}, changed: make(chan struct{}, 1),
	}
}

// Run observes the group until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	var watches sync.WaitGroup
	inNamespace := client.InNamespace(o.name.Namespace)
	watches.Go(func() {
		watchObjects(ctx, o.client, &v1.ElectionGroupList{}, &v1.ElectionGroup{}, o.groupChanged, inNamespace,
			client.MatchingFields{"metadata.name": o.name.Name})
	})
	watches.Go(func() {
		watchObjects(ctx, o.client, &corev1.PodList{}, &corev1.Pod{}, func(pod *corev1.Pod, deleted bool) { o.podChanged(ctx, pod, deleted) },
			inNamespace, client.MatchingLabels{v1.LabelAgent: v1.AgentEnabled})
	})
	watches.Go(func() {
		watchObjects(ctx, o.client, &discoveryv1.EndpointSliceList{}, &discoveryv1.EndpointSlice{}, o.sliceChanged, inNamespace,
			client.MatchingLabels{v1.LabelGroup: o.name.Name})
	})
	watches.Wait()
	o.agents.Wait()
}

func (o *Observer) notify() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *Observer) groupChanged(g *v1.ElectionGroup, deleted bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.notify()
	if deleted {
		o.group = nil
		return
	}
	o.group = g
	status := chaos.Status{At: now, Term: uint64(g.Status.Term)} //nolint:gosec // the schema has a minimum of 1
	if c := g.Status.Coordinator; c != nil {
		status.Coordinator = c.Pod
	}
	o.record.Statuses = append(o.record.Statuses, status)
}

func (o *Observer) podChanged(ctx context.Context, pod *corev1.Pod, deleted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.notify()
	known := o.pods[pod.UID]
	if deleted || isFinished(pod) || !isMember(pod, o.name.Name) {
		if known != nil && known.stop != nil {
			known.stop()
		}
		delete(o.pods, pod.UID)
		return
	}
	if known == nil {
		known = &observedPod{}
		o.pods[pod.UID] = known
	}
	known.Pod = pod
	if ip := pod.Status.PodIP; ip != "" && !slices.Contains(o.record.Addresses[pod.Name], ip) {
		o.record.Addresses[pod.Name] = append(o.record.Addresses[pod.Name], ip)
	}
	if known.stop == nil && agentStarted(pod) {
		var observed context.Context
		observed, known.stop = context.WithCancel(ctx)
		o.agents.Go(func() { o.observeAgent(observed, chaos.Agent{Pod: pod.Name, UID: string(pod.UID)}) })
	}
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// agentStarted reports whether the agent runs. It may be a sidecar, or an ordinary container.
func agentStarted(pod *corev1.Pod) bool {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == v1.AgentContainer && s.State.Running != nil {
			return true
		}
	}
	return false
}

func (o *Observer) sliceChanged(slice *discoveryv1.EndpointSlice, deleted bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.notify()
	delete(o.routes, slice.Name)
	if !deleted {
		for _, endpoint := range slice.Endpoints {
			o.routes[slice.Name] = append(o.routes[slice.Name], endpoint.Addresses...)
		}
	}
	o.record.Routes = append(o.record.Routes, chaos.Route{At: now, Addresses: o.endpoints()})
}

func (o *Observer) endpoints() (all []string) {
	for _, addresses := range o.routes {
		all = append(all, addresses...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Await waits until the condition holds, and reports whether it does before ctx ends.
func (o *Observer) Await(ctx context.Context, condition func(*chaos.Record, *chaos.State) bool) bool {
	for {
		o.mu.Lock()
		holds := condition(o.record, o.state())
		o.mu.Unlock()
		if holds {
			return true
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// inspect returns a value that is read while nothing changes.
func inspect[T any](o *Observer, read func(*chaos.Record, *chaos.State) T) T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return read(o.record, o.state())
}

// Begin starts a new record and returns the one before.
func (o *Observer) Begin() *chaos.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, state := o.record, o.state()
	o.record = &chaos.Record{Addresses: map[string][]string{}, Term: state.Term, HasService: state.HasService, Answers: chaos.HighestToken(before.Answers)}
	for _, p := range state.Pods {
		if p.IP != "" {
			o.record.Addresses[p.Pod] = []string{p.IP}
		}
		if p.View != nil && !p.View.Gone {
			o.record.Agents = append(o.record.Agents, p.Agent)
			o.record.Changes = append(o.record.Changes, *p.View)
		}
		if p.Pod == state.Coordinator {
			o.record.Before = p.Agent
		}
	}
	return before
}

// SetFault states when the fault began, which pods it affects, and whether one of them can be the next coordinator.
func (o *Observer) SetFault(at time.Time, victims map[string]bool, ousted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record.Fault, o.record.Victims, o.record.Ousted = at, victims, ousted
}

// state returns the current state.
func (o *Observer) state() *chaos.State {
	s := &chaos.State{Endpoints: o.endpoints()}
	if g := o.group; g != nil {
		s.Preempts = g.Spec.Preemption.Policy != v1.PreemptNever
		s.HasService = g.Spec.Service != nil
		if g.Status.Members != nil {
			s.Members = int(*g.Status.Members)
		}
		if c := g.Status.Coordinator; c != nil {
			s.Coordinator, s.Term = c.Pod, uint64(c.Term) //nolint:gosec // the schema has a minimum of 1
		}
		for i := range g.Status.Processes {
			s.Rows = append(s.Rows, row(&g.Status.Processes[i]))
		}
	}
	for _, p := range o.pods {
		s.Pods = append(s.Pods, chaos.PodState{
			Agent: chaos.Agent{Pod: p.Name, UID: string(p.UID)}, IP: p.Status.PodIP, Node: p.Spec.NodeName, Ready: isReady(p.Pod),
			Terminating: p.DeletionTimestamp != nil, Role: p.Labels[v1.RoleLabel(o.name.Name)], View: p.view,
		})
	}
	slices.SortFunc(s.Pods, func(a, b chaos.PodState) int { return strings.Compare(a.Pod+a.UID, b.Pod+b.UID) })
	return s
}

func row(p *v1.Process) chaos.Row {
	return chaos.Row{
		Pod: p.Pod, Priority: p.Priority, Reason: strings.TrimSpace(string(p.Status) + " " + string(p.Reason)),
		Up:       (p.Status == v1.ProcessCoordinator || p.Status == v1.ProcessNormal) && p.Reason != v1.ProcessUnreachable,
		Eligible: p.Priority > 0 && p.Reason != v1.ProcessNotEligible,
		HeldBack: p.Reason == v1.ProcessHeldBack,
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// pod returns the latest version of the pod with this UID, or nil.
func (o *Observer) pod(uid string) *corev1.Pod {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.pods[types.UID(uid)]; p != nil {
		return p.Pod
	}
	return nil
}

// measure sets the measurements of a fault.
func (o *Observer) measure(f *chaos.Fault) {
	if f.Refused != "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t := chaos.Measure(o.record)
	f.SetTimes(&t)
	f.Coordinator = t.Coordinator
}
