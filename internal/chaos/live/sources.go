package live

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// listInterval is the interval at which labels are listed if nothing changes.
const listInterval = 200 * time.Millisecond

// leaseSource is a Lease: its holder leads. The first version isn't a claim, because its holder may be gone.
type leaseSource struct {
	name types.NamespacedName

	seen           bool
	holder, tenure string
	agent          chaos.Agent
}

func (*leaseSource) asks() bool                                         { return false }
func (*leaseSource) seesTwo() bool                                      { return false }
func (*leaseSource) observePod(context.Context, *Observer, chaos.Agent) {}
func (*leaseSource) evidence() string {
	return "Two leaders: a Lease names one holder and can't show two. Ask the processes, by http or exec."
}

func (s *leaseSource) permissions(string) []permission {
	return []permission{{"list", "coordination.k8s.io", "leases", "", s.name.Namespace}, {
		"watch", "coordination.k8s.io", "leases", "", s.name.Namespace,
	}}
}

func (s *leaseSource) current(ctx context.Context, c client.Client, pods []corev1.Pod) (*corev1.Pod, string, error) {
	var lease coordinationv1.Lease
	err := c.Get(ctx, s.name, &lease)
	if apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("lease %s not found in namespace %s; to list all, run: kubectl get leases -A",
			s.name.Name, s.name.Namespace)
	}
	if err != nil {
		return nil, "", err
	}
	s.holder = holderOf(&lease)
	var all []*corev1.Pod
	for i := range pods {
		all = append(all, &pods[i])
	}
	return holderPod(s.holder, all), "", nil
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// holderPod returns the pod to which the identity of a holder belongs: it begins with the pod's name, or with that of
// the node if the pod uses the network of that. It returns nil if there is none, or more than one.
func holderPod(holder string, pods []*corev1.Pod) (found *corev1.Pod) {
	longest, count := 0, 0
	for _, pod := range pods {
		host := pod.Name
		if pod.Spec.HostNetwork && !beginsWith(holder, host) {
			host = pod.Spec.NodeName
		}
		switch {
		case host == "" || !beginsWith(holder, host) || len(host) < longest:
		case len(host) > longest:
			longest, count, found = len(host), 1, pod
		default:
			count++
		}
	}
	if count > 1 {
		return nil
	}
	return found
}

// beginsWith reports whether an identity is a name, or begins with it and a character that separates it from the rest.
func beginsWith(identity, name string) bool {
	rest, ok := strings.CutPrefix(identity, name)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], "_-./: "))
}

func (s *leaseSource) vacant() string {
	if s.holder == "" {
		return ": Lease " + s.name.Name + " has no holder"
	}
	return fmt.Sprintf(": the holder of Lease %s, %s, is no candidate, or doesn't renew it", s.name.Name, s.holder)
}

func (s *leaseSource) observe(ctx context.Context, o *Observer) {
	o.watches.Go(func() {
		watchObjects(ctx, o.client, &coordinationv1.LeaseList{}, &coordinationv1.Lease{},
			func(lease *coordinationv1.Lease, deleted bool) { s.changed(o, lease, deleted) },
			client.InNamespace(s.name.Namespace), client.MatchingFields{"metadata.name": s.name.Name})
	})
}

func (s *leaseSource) changed(o *Observer, lease *coordinationv1.Lease, deleted bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.unlock()
	if s.holder = holderOf(lease); deleted {
		s.holder = ""
	}
	if !s.seen {
		s.seen = true
		return
	}
	tenure := s.holder
	if t := lease.Spec.LeaseTransitions; t != nil {
		tenure += fmt.Sprint(" ", *t)
	}
	var pods []*corev1.Pod
	for _, p := range o.pods {
		pods = append(pods, p.Pod)
	}
	var agent chaos.Agent
	if pod := holderPod(s.holder, pods); pod != nil {
		agent = chaos.Agent{Pod: pod.Name, UID: string(pod.UID)}
	}
	if s.agent != (chaos.Agent{}) && (agent != s.agent || tenure != s.tenure) {
		o.claim(chaos.Claim{From: s.agent, Sent: now, Received: now})
	}
	if s.agent, s.tenure = agent, tenure; agent != (chaos.Agent{}) {
		o.claim(chaos.Claim{From: agent, Sent: now, Received: now, Leading: true})
	}
}

// labelSource is a label: the pods that have it lead. A list of the pods shows all labels at one instant, as a watch
// after an interruption doesn't.
type labelSource struct {
	key, value string
	leader     *Leader
	changed    chan struct{}
}

func (*labelSource) asks() bool                                         { return false }
func (*labelSource) seesTwo() bool                                      { return true }
func (*labelSource) observePod(context.Context, *Observer, chaos.Agent) {}
func (s *labelSource) vacant() string {
	return fmt.Sprintf(": none has the label %s=%s", s.key, s.value)
}
func (*labelSource) permissions(string) []permission { return nil }
func (*labelSource) evidence() string {
	return "Two leaders: two pods had the label at the same time. That doesn't prove that both processes led."
}

func (s *labelSource) leads(pod *corev1.Pod) bool {
	value, ok := pod.Labels[s.key]
	return ok && value == s.value && pod.DeletionTimestamp == nil
}

func (s *labelSource) current(_ context.Context, _ client.Client, pods []corev1.Pod) (*corev1.Pod, string, error) {
	for i := range pods {
		if s.leads(&pods[i]) {
			return &pods[i], s.key, nil
		}
	}
	return nil, "", nil
}

func (s *labelSource) observe(ctx context.Context, o *Observer) {
	o.watches.Go(func() {
		watchObjects(ctx, o.client, &corev1.PodList{}, &corev1.Pod{}, func(*corev1.Pod, bool) {
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}, append(s.leader.selected(), client.InNamespace(s.leader.Namespace))...)
	})
	o.watches.Go(func() {
		for instant := 1; ctx.Err() == nil; instant++ {
			var list corev1.PodList
			sent := time.Now()
			if err := o.client.List(ctx, &list,
				append(s.leader.selected(), client.InNamespace(s.leader.Namespace))...); err == nil {
				s.listed(o, &list, sent, instant)
			}
			select {
			case <-s.changed:
			case <-time.After(listInterval):
			case <-ctx.Done():
			}
		}
	})
}

func (s *labelSource) listed(o *Observer, list *corev1.PodList, sent time.Time, instant int) {
	now := time.Now()
	o.mu.Lock()
	defer o.unlock()
	for i := range list.Items {
		pod := &list.Items[i]
		o.claim(chaos.Claim{
			From: chaos.Agent{Pod: pod.Name, UID: string(pod.UID)}, Sent: sent, Received: now,
			Leading: s.leads(pod), Instant: instant,
		})
	}
}
