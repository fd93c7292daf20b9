package live

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
)

// Forward forwards a local port to a port of a pod.
type Forward func(ctx context.Context, pod types.NamespacedName, port int) (*portforward.Port, error)

// Observer observes a subject: its pods, and what the subject adds to them.
type Observer struct {
	client  client.WithWatch
	subject Subject

	mu     sync.Mutex
	pods   map[types.UID]*observedPod
	record *chaos.Record
	// changed has capacity 1. An element means that Await must check its condition.
	changed        chan struct{}
	watches, asked sync.WaitGroup
}

// observedPod is a pod with the observation of its agent, or of another leader.
type observedPod struct {
	*corev1.Pod

	view *chaos.Change
	said *chaos.Claim
	// silence is why the pod didn't answer the last time.
	silence error
	stop    context.CancelFunc
}

// NewObserver returns an observer of this subject. It observes nothing before Run.
func NewObserver(c client.WithWatch, subject Subject) *Observer {
	o := &Observer{client: c, subject: subject, pods: map[types.UID]*observedPod{}, changed: make(chan struct{}, 1)}
	o.record = &chaos.Record{Addresses: map[string][]string{}}
	if subject != nil {
		subject.begin(o.record, o.record, &chaos.State{})
	}
	return o
}

// Run observes the subject until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	o.watches.Go(func() {
		watchObjects(ctx, o.client, &corev1.PodList{}, &corev1.Pod{},
			func(pod *corev1.Pod, deleted bool) { o.podChanged(ctx, pod, deleted) },
			append(o.subject.selected(), client.InNamespace(o.subject.namespace()))...)
	})
	o.subject.observe(ctx, o)
	o.watches.Wait()
	o.asked.Wait()
}

// unlock unlocks the observer after a change, and lets Await check its condition.
func (o *Observer) unlock() {
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *Observer) podChanged(ctx context.Context, pod *corev1.Pod, deleted bool) {
	o.mu.Lock()
	defer o.unlock()
	known := o.pods[pod.UID]
	if deleted || isFinished(pod) || !o.subject.isCandidate(pod) {
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
	if known.stop == nil && o.subject.isObservable(pod) {
		var observed context.Context
		observed, known.stop = context.WithCancel(ctx)
		o.asked.Go(func() { o.subject.observePod(observed, o, chaos.Agent{Pod: pod.Name, UID: string(pod.UID)}) })
	}
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// through forwards a port to a pod, and calls functions with its URL until one of them returns, the connection breaks
// or ctx ends.
func (o *Observer) through(ctx context.Context, forward Forward, to int, agent chaos.Agent,
	observe ...func(ctx context.Context, url string) error,
) error {
	port, err := forward(ctx, types.NamespacedName{Namespace: o.subject.namespace(), Name: agent.Pod}, to)
	if err != nil {
		return err
	}
	defer port.Close()
	if !o.exists(ctx, agent) {
		return errReplaced
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(observe))
	var observing sync.WaitGroup
	defer observing.Wait()
	defer cancel()
	for _, f := range observe {
		observing.Go(func() { ended <- f(ctx, port.URL) })
	}
	select {
	case <-port.Ended:
		return port.Annotate(errors.New("the connection has ended"))
	case err := <-ended:
		if err != nil {
			err = port.Annotate(err)
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errReplaced = errors.New("the pod was replaced")

// exists reports whether the pod of an agent exists. A port is forwarded to the pod that has the name: if that is
// another one by now, its answers must not count as those of the former one.
func (o *Observer) exists(ctx context.Context, agent chaos.Agent) bool {
	var list corev1.PodList
	err := o.client.List(ctx, &list, client.InNamespace(o.subject.namespace()),
		client.MatchingFields{"metadata.name": agent.Pod})
	return err == nil && len(list.Items) == 1 && string(list.Items[0].UID) == agent.UID
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
	o.record = &chaos.Record{Addresses: map[string][]string{}}
	o.subject.begin(before, o.record, state)
	for _, p := range state.Pods {
		if p.IP != "" {
			o.record.Addresses[p.Pod] = []string{p.IP}
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
	o.record.Fault, o.record.Since, o.record.Victims, o.record.Ousted = at, at, victims, ousted
}

// undone states that a fault has just ended.
func (o *Observer) undone() {
	o.mu.Lock()
	defer o.unlock()
	o.record.Since = time.Now()
}

// state returns the current state.
func (o *Observer) state() *chaos.State {
	s := &chaos.State{}
	for _, p := range o.pods {
		s.Pods = append(s.Pods, chaos.PodState{
			Agent: chaos.Agent{Pod: p.Name, UID: string(p.UID)}, IP: p.Status.PodIP,
			Node: p.Spec.NodeName, Ready: isReady(p.Pod),
			Terminating: p.DeletionTimestamp != nil,
		})
	}
	slices.SortFunc(s.Pods, func(a, b chaos.PodState) int { return strings.Compare(a.Pod+a.UID, b.Pod+b.UID) })
	o.subject.complete(o, s)
	return s
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
