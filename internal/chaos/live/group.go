package live

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	agentapi "github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// The intervals at which agents are queried, and at which forwarding is retried.
const (
	coordinatorInterval = 20 * time.Millisecond
	followerInterval    = 250 * time.Millisecond
	forwardRetry        = 200 * time.Millisecond
	queryTimeout        = 2 * time.Second
	// maxTimeouts is the number of queries without a response, one after the other, after which forwarding starts again: a
	// forwarded port may remain silent after its node was isolated.
	maxTimeouts = 5
)

// Group is a group as the subject of a run: its object, the endpoints of its Service, and its agents are observed.
type Group struct {
	Object  *v1.ElectionGroup
	Forward Forward

	// latest and routes are the latest versions, guarded by the mutex of the observer. Routes are addresses by
	// EndpointSlice.
	latest *v1.ElectionGroup
	routes map[string][]string
}

func (g *Group) String() string    { return "group " + g.Object.Name }
func (g *Group) namespace() string { return g.Object.Namespace }
func (g *Group) hasSides() bool    { return g.Object.Spec.Safety.Mode == v1.Available }

func (*Group) linger() time.Duration { return 0 }

func (g *Group) selected() []client.ListOption {
	return []client.ListOption{client.MatchingLabels{v1.LabelAgent: v1.AgentEnabled}}
}

func (g *Group) isCandidate(pod *corev1.Pod) bool { return isMember(pod, g.Object.Name) }

// isMember reports whether a pod says that it is a member of a group.
func isMember(pod *corev1.Pod, group string) bool {
	return slices.Contains(slices.Collect(v1.GroupNames(v1.GroupsAnnotation(pod.Annotations))), group)
}

// isObservable reports whether the agent runs. It may be a sidecar, or an ordinary container.
func (*Group) isObservable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool {
			return s.Name == v1.AgentContainer && s.State.Running != nil
		})
}

func (g *Group) permissions() []permission {
	all := []permission{{"create", "", "pods", "portforward", g.namespace()}}
	for _, verb := range []string{"list", "watch"} {
		all = append(all, permission{verb, "conclave.dev", "electiongroups", "", g.namespace()})
		if g.Object.Spec.Service != nil {
			all = append(all, permission{verb, "discovery.k8s.io", "endpointslices", "", g.namespace()})
		}
	}
	return all
}

func (g *Group) describe(r *chaos.Result) {
	r.Group, r.Algorithm, r.Safety = g.Object.Name, string(g.Object.Spec.Algorithm), string(g.Object.Spec.Safety.Mode)
}

// Others returns the groups that have a pod of this group as a member, too. Faults of its pods concern them as well.
func (g *Group) Others(ctx context.Context, c client.Client) ([]v1.ElectionGroup, error) {
	members, err := candidates(ctx, c, g)
	if err != nil {
		return nil, err
	}
	var list v1.ElectionGroupList
	if err := c.List(ctx, &list, client.InNamespace(g.namespace())); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(other v1.ElectionGroup) bool {
		return other.Name == g.Object.Name ||
			!slices.ContainsFunc(members, func(pod *corev1.Pod) bool { return isMember(pod, other.Name) })
	}), nil
}

func (g *Group) observe(ctx context.Context, o *Observer) {
	inNamespace := client.InNamespace(g.namespace())
	o.watches.Go(func() {
		watchObjects(ctx, o.client, &v1.ElectionGroupList{}, &v1.ElectionGroup{},
			func(now *v1.ElectionGroup, deleted bool) { g.changed(o, now, deleted) },
			inNamespace, client.MatchingFields{"metadata.name": g.Object.Name})
	})
	o.watches.Go(func() {
		watchObjects(ctx, o.client, &discoveryv1.EndpointSliceList{}, &discoveryv1.EndpointSlice{},
			func(slice *discoveryv1.EndpointSlice, deleted bool) { g.sliceChanged(o, slice, deleted) },
			inNamespace, client.MatchingLabels{v1.LabelGroup: g.Object.Name})
	})
}

func (g *Group) changed(o *Observer, now *v1.ElectionGroup, deleted bool) {
	at := time.Now()
	o.mu.Lock()
	defer o.unlock()
	if deleted {
		g.latest = nil
		return
	}
	g.latest = now
	status := chaos.Status{At: at, Term: uint64(now.Status.Term)} //nolint:gosec // the schema has a minimum of 1
	if c := now.Status.Coordinator; c != nil {
		status.Coordinator = c.Pod
	}
	o.record.Statuses = append(o.record.Statuses, status)
}

func (g *Group) sliceChanged(o *Observer, slice *discoveryv1.EndpointSlice, deleted bool) {
	at := time.Now()
	o.mu.Lock()
	defer o.unlock()
	if g.routes == nil {
		g.routes = map[string][]string{}
	}
	delete(g.routes, slice.Name)
	if !deleted {
		for _, endpoint := range slice.Endpoints {
			g.routes[slice.Name] = append(g.routes[slice.Name], endpoint.Addresses...)
		}
	}
	o.record.Routes = append(o.record.Routes, chaos.Route{At: at, Addresses: g.endpoints()})
}

func (g *Group) endpoints() (all []string) {
	for _, addresses := range g.routes {
		all = append(all, addresses...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// complete adds what the object of the group, the labels and the Service say.
func (g *Group) complete(o *Observer, s *chaos.State) {
	s.Endpoints = g.endpoints()
	if now := g.latest; now != nil {
		s.Preempts = now.Spec.Preemption.Policy != v1.PreemptNever
		s.HasService = now.Spec.Service != nil
		if now.Status.Members != nil {
			s.Members = int(*now.Status.Members)
		}
		if c := now.Status.Coordinator; c != nil {
			s.Coordinator, s.Term = c.Pod, uint64(c.Term) //nolint:gosec // the schema has a minimum of 1
		}
		for i := range now.Status.Processes {
			s.Rows = append(s.Rows, row(&now.Status.Processes[i]))
		}
	}
	for i := range s.Pods {
		p := o.pods[types.UID(s.Pods[i].UID)]
		s.Pods[i].Role, s.Pods[i].View = p.Labels[v1.RoleLabel(g.Object.Name)], p.view
	}
}

func row(p *v1.Process) chaos.Row {
	return chaos.Row{
		Pod: p.Pod, Priority: p.Priority, Witness: v1.IsWitness(p.Pod),
		Reason: strings.TrimSpace(string(p.Status) + " " + string(p.Reason)),
		Up: (p.Status == v1.ProcessCoordinator || p.Status == v1.ProcessNormal) && p.Reason != v1.ProcessUnreachable &&
			p.Reason != v1.ProcessNoCertificate,
		Eligible: p.Priority > 0 && p.Reason != v1.ProcessNotEligible,
		HeldBack: p.Reason == v1.ProcessHeldBack || p.Reason == v1.ProcessHandOversPaused,
	}
}

func (*Group) begin(before, after *chaos.Record, s *chaos.State) {
	after.Term, after.HasService, after.Answers = s.Term, s.HasService, chaos.HighestToken(before.Answers)
	for _, p := range s.Pods {
		if p.View != nil && !p.View.Gone {
			after.Agents = append(after.Agents, p.Agent)
			after.Changes = append(after.Changes, *p.View)
		}
	}
}

// observePod observes the agent of a pod until ctx ends.
func (g *Group) observePod(ctx context.Context, o *Observer, agent chaos.Agent) {
	for ctx.Err() == nil {
		// If that fails, the agent isn't observed, which Problems reports.
		_ = o.through(ctx, g.Forward, control.LocalPort, agent,
			func(ctx context.Context, url string) error { return g.watchAgent(ctx, o, agent, url) },
			func(ctx context.Context, url string) error { return g.queryAgent(ctx, o, agent, url) })
		g.agentChanged(o, &chaos.Change{From: agent, At: time.Now(), Gone: true})
		wait(ctx, forwardRetry)
	}
}

// watchAgent records the changes that an agent reports.
func (g *Group) watchAgent(ctx context.Context, o *Observer, agent chaos.Agent, url string) error {
	for state, err := range agentapi.Watch(ctx, g.Object.Name, agentapi.At(url)) {
		change := &chaos.Change{From: agent, At: time.Now(), Gone: err != nil}
		if err == nil {
			change.Coordinator, change.Leading, change.Term = state.Coordinator, state.Leading, state.Term
		}
		g.agentChanged(o, change)
	}
	return nil
}

func (*Group) agentChanged(o *Observer, change *chaos.Change) {
	o.mu.Lock()
	defer o.unlock()
	if p := o.pods[types.UID(change.From.UID)]; p != nil {
		p.view = change
	}
	o.record.Changes = append(o.record.Changes, *change)
}

// queryAgent queries an agent periodically and records when it leads, until it doesn't respond any more. A query asks
// for no promise, which would delay hand-overs.
func (g *Group) queryAgent(ctx context.Context, o *Observer, agent chaos.Agent, url string) error {
	for timeouts := 0; ctx.Err() == nil && timeouts < maxTimeouts; {
		query, cancel := context.WithTimeout(ctx, queryTimeout)
		sent := time.Now()
		state, err := agentapi.Leader(query, g.Object.Name, agentapi.At(url))
		received := time.Now()
		if timeouts++; query.Err() == nil {
			timeouts = 0
		}
		cancel()
		interval := followerInterval
		if err == nil && state.Leading {
			interval = coordinatorInterval
			o.mu.Lock()
			o.record.Answers = append(o.record.Answers,
				chaos.Answer{From: agent, Sent: sent, Received: received, Term: state.Term, Token: state.Token})
			o.mu.Unlock()
		}
		wait(ctx, interval)
	}
	return nil
}
