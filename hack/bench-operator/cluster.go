package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

// Cluster is the sample group of five pods on a cluster of three nodes, with
// real agents, kubelets and two replicas of the manager.
type Cluster struct {
	Nodes int `json:"nodes"`
	// Up is from the moment when the last pod is Ready until the group shows its
	// coordinator and the full table.
	Up        float64 `json:"upSeconds"`
	Kills     *Blows  `json:"kills,omitempty"`
	Deletions *Blows  `json:"deletions,omitempty"`
	HandOvers *Blows  `json:"handOvers,omitempty"`
	Idle      *Idle   `json:"idle,omitempty"`

	Goals    []benchmark.Goal `json:"goals"`
	Failures []string         `json:"failures,omitempty"`
}

// Blows are rounds in which something befalls the coordinator.
type Blows struct {
	// Elected is from right before it until the next one is elected, by the
	// agents' own word: status.coordinator.electedAt. All is one machine, and so
	// one clock. The others are from then until a watch shows it.
	Elected  *benchmark.Series `json:"elected,omitempty"`
	Status   *benchmark.Series `json:"status,omitempty"`
	Label    *benchmark.Series `json:"label,omitempty"`
	Endpoint *benchmark.Series `json:"endpoint,omitempty"`
}

// site is the cluster while it is measured.
type site struct {
	*measurer
	place  *place
	client client.WithWatch
	admin  *kubernetes.Clientset
	seen   *sightings
	result *Cluster
}

func (m *measurer) cluster(ctx context.Context) (result *Cluster, err error) {
	p, err := m.findPlace(ctx)
	if err != nil {
		return nil, err
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &site{measurer: m, place: p, seen: newSightings(), result: &Cluster{Nodes: clusterNodes}}
	defer func() {
		cancel()
		if m.options.keep {
			return
		}
		m.say("cluster: taking it down")
		err = errors.Join(err, p.remove(ctx))
	}()
	for _, act := range []func(context.Context) error{s.setUp, s.apply, s.kills, s.deletions, s.handOvers, s.idle} {
		if err := act(watched); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, p.explain(context.WithoutCancel(ctx)))
		}
	}
	s.result.judge()
	return s.result, nil
}

func (s *site) setUp(ctx context.Context) error {
	s.say("cluster: bringing it up")
	if err := s.place.bringUp(ctx); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if s.client, err = client.NewWithWatch(s.place.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if s.admin, err = kubernetes.NewForConfig(s.place.config); err != nil {
		return err
	}
	s.say("cluster: installing the operator")
	return s.place.install(ctx)
}

// apply makes the group.
func (s *site) apply(ctx context.Context) error {
	s.say("cluster: applying %s", sampleFile)
	if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sampleSpace}}); err != nil {
		return err
	}
	for _, kind := range watchedKinds {
		if err := s.seen.watch(ctx, s.client, kind()); err != nil {
			return err
		}
	}
	if err := s.place.kubectl(ctx, "apply", "--namespace", sampleSpace, "-f", sampleFile); err != nil {
		return err
	}
	var running time.Time
	err := s.seen.await(ctx, "all pods are ready", patience, func() bool {
		if s.seen.group == nil || len(s.seen.pods) < len(s.seen.group.Spec.Members) {
			return false
		}
		for _, pod := range s.seen.pods {
			if !ready(pod) {
				return false
			}
		}
		running = time.Now()
		return true
	})
	if err != nil {
		return err
	}
	err = s.settle(ctx)
	s.result.Up = time.Since(running).Seconds()
	return err
}

func (s *site) settle(ctx context.Context) error {
	return s.seen.await(ctx, "all members are up, the highest leads, and the labels and the Service say so", patience, s.seen.well)
}

func (s *site) kills(ctx context.Context) (err error) {
	s.result.Kills, err = s.rounds(ctx, "kill", s.options.kills, s.kill)
	return err
}

func (s *site) deletions(ctx context.Context) (err error) {
	s.result.Deletions, err = s.rounds(ctx, "deletion", s.options.deletions, func(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
		return time.Now(), s.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	})
	return err
}

func (s *site) handOvers(ctx context.Context) (err error) {
	s.result.HandOvers, err = s.rounds(ctx, "hand-over", s.options.handOvers, func(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
		return time.Now(), s.client.Delete(ctx, pod)
	})
	return err
}

// kill ends the agent as a crash does.
func (s *site) kill(_ context.Context, pod *corev1.Pod) (time.Time, error) {
	for _, agent := range program.Agents(clusterName) {
		if agent.Pod == pod.Name {
			return time.Now(), syscall.Kill(agent.PID, syscall.SIGKILL)
		}
	}
	return time.Time{}, fmt.Errorf("no agent of %s runs on this machine", pod.Name)
}

// blow is one round.
type blow struct{ elected, status, label, endpoint time.Duration }

// rounds repeats something. A round that is late counts as failed; any other
// error ends the measurement.
func (s *site) rounds(ctx context.Context, what string, count int, strike func(context.Context, *corev1.Pod) (time.Time, error)) (*Blows, error) {
	var elected, status, label, endpoint []time.Duration
	for i := range count {
		b, err := s.round(ctx, strike)
		var late lateError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &late):
			s.result.Failures = append(s.result.Failures, fmt.Sprintf("%s %d: %s", what, i+1, late.what))
		case err != nil:
			return nil, fmt.Errorf("%s %d: %w", what, i+1, err)
		default:
			elected, status = append(elected, b.elected), append(status, b.status)
			label, endpoint = append(label, b.label), append(endpoint, b.endpoint)
		}
		if (i+1)%max(1, count/4) == 0 {
			s.say("cluster: %d of %d rounds of %s", i+1, count, what)
		}
	}
	return &Blows{benchmark.NewSeries(elected), benchmark.NewSeries(status), benchmark.NewSeries(label), benchmark.NewSeries(endpoint)}, nil
}

func (s *site) round(ctx context.Context, strike func(context.Context, *corev1.Pod) (time.Time, error)) (blow, error) {
	if err := s.settle(ctx); err != nil {
		return blow{}, err
	}
	// Whatever has a rhythm is not to be met at the same beat each time.
	if err := benchmark.Wait(ctx, rand.N(time.Second)); err != nil {
		return blow{}, err
	}
	before := ask(s.seen, func() v1.Coordinator { return *s.seen.group.Status.Coordinator })
	victim := ask(s.seen, func() *corev1.Pod { return s.seen.pods[before.Pod].DeepCopy() })
	s.seen.begin()
	moment, err := strike(ctx, victim)
	if err != nil {
		return blow{}, err
	}
	b, late := s.follow(ctx, before, moment)
	// The kubelet waits longer each time before it starts the same container
	// again; another pod begins anew.
	current := &corev1.Pod{}
	err = s.client.Get(ctx, client.ObjectKeyFromObject(victim), current)
	if err == nil && current.UID == victim.UID && current.DeletionTimestamp == nil {
		err = s.client.Delete(ctx, current, client.GracePeriodSeconds(0), client.Preconditions{UID: &current.UID})
	}
	return b, errors.Join(late, client.IgnoreNotFound(err), s.awaitReplaced(ctx, victim))
}

func (s *site) awaitReplaced(ctx context.Context, victim *corev1.Pod) error {
	return s.seen.await(ctx, "the pod is made anew", patience, func() bool {
		pod := s.seen.pods[victim.Name]
		return pod != nil && pod.UID != victim.UID
	})
}

// limit is how long it may take until another one leads, and all says so.
const limit = time.Minute

func (s *site) follow(ctx context.Context, before v1.Coordinator, moment time.Time) (b blow, err error) {
	err = s.seen.await(ctx, "another one leads, and its label and the Service say so", limit, func() bool {
		for _, status := range s.seen.statuses {
			next := status.coordinator
			if next.Term <= before.Term || next.Pod == before.Pod || s.seen.pods[next.Pod] == nil {
				continue
			}
			labelled, isLabelled := s.seen.labelled[next.Pod]
			routed, isRouted := s.seen.routed[s.seen.pods[next.Pod].Status.PodIP]
			known := next.ElectedAt.Time
			b = blow{known.Sub(moment), status.at.Sub(known), labelled.Sub(known), routed.Sub(known)}
			return isLabelled && isRouted
		}
		return false
	})
	return b, err
}

// idle counts what the operator asks for while nothing happens. Its two replicas
// have one service account.
func (s *site) idle(ctx context.Context) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	requests, err := newMeter(ctx, s.admin, "manager", managerUser)
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, 2*s.options.settle); err != nil {
		return err
	}
	s.say("cluster: counting requests for %s", s.options.clusterIdle)
	before, err := requests.count(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := benchmark.Wait(ctx, s.options.clusterIdle); err != nil {
		return err
	}
	after, err := requests.count(ctx)
	s.result.Idle = &Idle{Seconds: time.Since(begun).Seconds(), Requests: after.since(before)}
	return err
}

func (c *Cluster) judge() {
	for _, series := range []struct {
		what  string
		blows *Blows
	}{{"kill", c.Kills}, {"forced deletion", c.Deletions}, {"hand-over", c.HandOvers}} {
		if series.blows.Status != nil {
			c.Goals = append(c.Goals, benchmark.AtMost(series.what+", elected -> status, p99", "ms", series.blows.Status.P99, 100),
				benchmark.AtMost(series.what+", elected -> Service, p99", "ms", series.blows.Endpoint.P99, 100))
		}
	}
	c.Goals = append(c.Goals,
		benchmark.AtMost("full table after the last pod is ready", "s", c.Up, 5),
		benchmark.AtMost("writes while idle, but for the Lease", "requests", c.Idle.Requests.of(writes), 0),
		benchmark.AtMost("reads while idle, but for the Lease", "requests", c.Idle.Requests.of(reads), 0))
}
