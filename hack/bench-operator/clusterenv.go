package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// Cluster contains the results for the sample group of five pods on a cluster with three
// nodes. Agents, kubelets and the two replicas of the manager are real.
type Cluster struct {
	Nodes int
	// Up is the time from the moment when the last pod is Ready until the group's status
	// shows its coordinator and all processes.
	Up        float64
	Kills     *Failovers
	Deletions *Failovers
	HandOvers *Failovers
	Idle      *Idle

	Goals    []benchmark.Goal
	Failures []string
}

// Failovers contains the results of rounds in which the group loses its coordinator.
type Failovers struct {
	// Elected is the time from just before the fault until the next coordinator is
	// elected according to status.coordinator.electedAt. Everything runs on one machine,
	// which has one clock. The other series measure the time from then until a watch
	// shows the status, the role label, and the endpoint of the Service.
	Elected  *benchmark.Series
	Status   *benchmark.Series
	Label    *benchmark.Series
	Endpoint *benchmark.Series
}

// clusterEnv is the environment of the cluster part.
type clusterEnv struct {
	*runner
	cluster  *testCluster
	client   client.WithWatch
	admin    *kubernetes.Clientset
	observer *groupObserver
	result   *Cluster
}

func (r *runner) cluster(ctx context.Context) (result *Cluster, err error) {
	c, err := r.newTestCluster(ctx)
	if err != nil {
		return nil, err
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	env := &clusterEnv{runner: r, cluster: c, observer: newGroupObserver(), result: &Cluster{Nodes: clusterNodes}}
	defer func() {
		cancel()
		if r.options.keep {
			return
		}
		r.printf("cluster: removing the cluster")
		err = errors.Join(err, c.remove(ctx))
	}()
	for _, step := range []func(context.Context) error{env.setUp, env.createGroup, env.kills, env.deletions, env.handOvers, env.idle} {
		if err := step(watched); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, c.diagnostics(context.WithoutCancel(ctx)))
		}
	}
	env.result.judge()
	return env.result, nil
}

func (e *clusterEnv) setUp(ctx context.Context) error {
	e.printf("cluster: starting a cluster")
	if err := e.cluster.start(ctx); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if e.client, err = client.NewWithWatch(e.cluster.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if e.admin, err = kubernetes.NewForConfig(e.cluster.config); err != nil {
		return err
	}
	e.printf("cluster: installing the operator")
	return e.cluster.install(ctx)
}

// writeSample writes the sample with an image that does nothing, which the nodes of a throwaway cluster have, and returns the file.
func (e *clusterEnv) writeSample() (string, error) {
	content, err := os.ReadFile(sampleFile)
	if err != nil {
		return "", err
	}
	content = bytes.ReplaceAll(content, []byte("image.invalid/worker:unset"), []byte("conclave.dev/hack/pause:1"))
	file := filepath.Join(e.cluster.folder, "sample.yaml")
	return file, os.WriteFile(file, content, 0o600)
}

// createGroup applies the sample and waits until the group has settled.
func (e *clusterEnv) createGroup(ctx context.Context) error {
	e.printf("cluster: applying %s", sampleFile)
	if err := e.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sampleNamespace}}); err != nil {
		return err
	}
	for _, kind := range watchedKinds {
		if err := e.observer.watch(ctx, e.client, kind()); err != nil {
			return err
		}
	}
	file, err := e.writeSample()
	if err != nil {
		return err
	}
	if err := e.cluster.kubectl(ctx, "apply", "--namespace", sampleNamespace, "-f", file); err != nil {
		return err
	}
	var running time.Time
	err = e.observer.await(ctx, "all pods to be ready", waitMax, func() bool {
		if e.observer.group == nil || len(e.observer.pods) < len(e.observer.group.Spec.Members) {
			return false
		}
		for _, pod := range e.observer.pods {
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
	err = e.settle(ctx)
	e.result.Up = time.Since(running).Seconds()
	return err
}

func (e *clusterEnv) settle(ctx context.Context) error {
	return e.observer.await(ctx, "the highest priority to lead, with all members, labels and the Service up to date", waitMax, e.observer.settled)
}

func (e *clusterEnv) kills(ctx context.Context) (err error) {
	e.result.Kills, err = e.rounds(ctx, "kill", e.options.kills, e.kill)
	return err
}

func (e *clusterEnv) deletions(ctx context.Context) (err error) {
	e.result.Deletions, err = e.rounds(ctx, "deletion", e.options.deletions, func(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
		return time.Now(), e.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	})
	return err
}

func (e *clusterEnv) handOvers(ctx context.Context) (err error) {
	e.result.HandOvers, err = e.rounds(ctx, "hand-over", e.options.handOvers, func(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
		return time.Now(), e.client.Delete(ctx, pod)
	})
	return err
}

// kill kills the agent of a pod, as a crash would.
func (e *clusterEnv) kill(_ context.Context, pod *corev1.Pod) (time.Time, error) {
	for _, agent := range program.Agents(clusterName) {
		if agent.Pod == pod.Name {
			return time.Now(), syscall.Kill(agent.PID, syscall.SIGKILL)
		}
	}
	return time.Time{}, fmt.Errorf("cannot find the agent of pod %s on this machine", pod.Name)
}

// failover contains the durations of one round; see Failovers.
type failover struct{ elected, status, label, endpoint time.Duration }

// fault takes the coordinator's pod away and returns the time just before.
type fault func(context.Context, *corev1.Pod) (time.Time, error)

// rounds runs a number of rounds. A round that times out is reported as a failure; any
// other error ends the benchmark.
func (e *clusterEnv) rounds(ctx context.Context, kind string, count int, inject fault) (*Failovers, error) {
	var elected, status, label, endpoint []time.Duration
	for i := range count {
		f, err := e.round(ctx, inject)
		var timeout timeoutError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &timeout):
			e.result.Failures = append(e.result.Failures, fmt.Sprintf("%s %d: %s", kind, i+1, timeout.message))
		case err != nil:
			return nil, fmt.Errorf("%s %d: %w", kind, i+1, err)
		default:
			elected, status = append(elected, f.elected), append(status, f.status)
			label, endpoint = append(label, f.label), append(endpoint, f.endpoint)
		}
		if (i+1)%max(1, count/4) == 0 {
			e.printf("cluster: %s %d of %d", kind, i+1, count)
		}
	}
	return &Failovers{benchmark.NewSeries(elected), benchmark.NewSeries(status), benchmark.NewSeries(label), benchmark.NewSeries(endpoint)}, nil
}

func (e *clusterEnv) round(ctx context.Context, inject fault) (failover, error) {
	if err := e.settle(ctx); err != nil {
		return failover{}, err
	}
	// A random delay keeps the rounds from hitting periodic tasks, such as resyncs and
	// heartbeats, at the same phase each time.
	if err := benchmark.Wait(ctx, rand.N(time.Second)); err != nil {
		return failover{}, err
	}
	before := locked(e.observer, func() v1.Coordinator { return *e.observer.group.Status.Coordinator })
	victim := locked(e.observer, func() *corev1.Pod { return e.observer.pods[before.Pod].DeepCopy() })
	e.observer.begin()
	begun, err := inject(ctx, victim)
	if err != nil {
		return failover{}, err
	}
	f, timeout := e.awaitFailover(ctx, before, begun)
	// The kubelet delays the restarts of a container more each time. Replace the pod, so
	// that the delay starts over.
	current := &corev1.Pod{}
	err = e.client.Get(ctx, client.ObjectKeyFromObject(victim), current)
	if err == nil && current.UID == victim.UID && current.DeletionTimestamp == nil {
		err = e.client.Delete(ctx, current, client.GracePeriodSeconds(0), client.Preconditions{UID: &current.UID})
	}
	return f, errors.Join(timeout, client.IgnoreNotFound(err), e.awaitReplaced(ctx, victim))
}

func (e *clusterEnv) awaitReplaced(ctx context.Context, victim *corev1.Pod) error {
	return e.observer.await(ctx, "the pod to be replaced", waitMax, func() bool {
		pod := e.observer.pods[victim.Name]
		return pod != nil && pod.UID != victim.UID
	})
}

// failoverTimeout is the time after which a round has failed.
const failoverTimeout = time.Minute

func (e *clusterEnv) awaitFailover(ctx context.Context, before v1.Coordinator, begun time.Time) (f failover, err error) {
	err = e.observer.await(ctx, "another pod to lead, with its label and the Service up to date", failoverTimeout, func() bool {
		for _, status := range e.observer.statuses {
			next := status.coordinator
			if next.Term <= before.Term || next.Pod == before.Pod || e.observer.pods[next.Pod] == nil {
				continue
			}
			label, hasLabel := e.observer.labels[next.Pod]
			route, hasRoute := e.observer.routes[e.observer.pods[next.Pod].Status.PodIP]
			elected := next.ElectedAt.Time
			f = failover{elected.Sub(begun), status.at.Sub(elected), label.Sub(elected), route.Sub(elected)}
			return hasLabel && hasRoute
		}
		return false
	})
	return f, err
}

// idle counts the operator's requests while nothing happens. Both replicas have the same
// service account.
func (e *clusterEnv) idle(ctx context.Context) error {
	if err := e.settle(ctx); err != nil {
		return err
	}
	requests, err := newRequestCounter(ctx, e.admin, "manager", managerUser)
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, 2*e.options.settle); err != nil {
		return err
	}
	e.printf("cluster: counting requests for %s", e.options.clusterIdle)
	before, err := requests.count(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := benchmark.Wait(ctx, e.options.clusterIdle); err != nil {
		return err
	}
	after, err := requests.count(ctx)
	e.result.Idle = &Idle{Seconds: time.Since(begun).Seconds(), Requests: after.minus(before)}
	return err
}

func (c *Cluster) judge() {
	for _, fault := range []struct {
		name   string
		series *Failovers
	}{{"kill", c.Kills}, {"forced deletion", c.Deletions}, {"hand-over", c.HandOvers}} {
		if fault.series.Status != nil {
			c.Goals = append(c.Goals, benchmark.AtMost(fault.name+", election until status, p99", "ms", fault.series.Status.P99, 100),
				benchmark.AtMost(fault.name+", election until Service, p99", "ms", fault.series.Endpoint.P99, 100))
		}
	}
	c.Goals = append(c.Goals,
		benchmark.AtMost("last pod ready until complete status", "s", c.Up, 5),
		benchmark.AtMost("writes while idle, without the Lease", "requests", c.Idle.Requests.withPrefix(writes), 0),
		benchmark.AtMost("reads while idle, without the Lease", "requests", c.Idle.Requests.withPrefix(reads), 0))
}
