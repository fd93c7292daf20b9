package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// Cluster contains the results for the sample group of five pods on a cluster with three
// nodes, whose coordinator's agent is killed. Agents, kubelets and the two replicas of the
// manager are real.
type Cluster struct {
	// Elected is the time from just before the kill until the next coordinator is
	// elected according to status.coordinator.electedAt. Everything runs on one machine,
	// which has one clock. The other series measure the time from then until a watch
	// shows the status, and the endpoint of the Service.
	Elected, Status, Endpoint *benchmark.Series

	Goals    []benchmark.Goal
	Failures []string
}

// clusterEnv is the environment of the cluster part.
type clusterEnv struct {
	*runner
	cluster  *testCluster
	client   client.WithWatch
	observer *groupObserver
	result   *Cluster
}

func (r *runner) cluster(ctx context.Context) (result *Cluster, err error) {
	c, err := r.newTestCluster(ctx)
	if err != nil {
		return nil, err
	}
	watched, cancel := context.WithCancel(ctx)
	env := &clusterEnv{runner: r, cluster: c, observer: newGroupObserver(), result: &Cluster{}}
	defer func() {
		cancel()
		r.printf("cluster: removing the cluster")
		err = errors.Join(err, c.remove(ctx))
	}()
	for _, step := range []func(context.Context) error{env.setUp, env.createGroup, env.kills} {
		if err := step(watched); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, c.diagnostics(context.WithoutCancel(ctx)))
		}
	}
	env.result.judge()
	return env.result, nil
}

func (e *clusterEnv) setUp(ctx context.Context) (err error) {
	e.printf("cluster: starting a cluster")
	if err := e.cluster.start(ctx); err != nil {
		return err
	}
	if e.client, err = client.NewWithWatch(e.cluster.config, client.Options{Scheme: testclient.Scheme()}); err != nil {
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
	return e.settle(ctx)
}

func (e *clusterEnv) settle(ctx context.Context) error {
	return e.observer.await(ctx, "the highest priority to lead, with all members, labels and the Service up to date", waitMax, e.observer.settled)
}

// failover contains the durations of one round; see Cluster.
type failover struct{ elected, status, endpoint time.Duration }

// kills runs the rounds. A round that times out is reported as a failure; any other error
// ends the benchmark.
func (e *clusterEnv) kills(ctx context.Context) error {
	count := e.options.kills
	var elected, status, endpoint []time.Duration
	for i := range count {
		f, err := e.round(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			e.result.Failures = append(e.result.Failures, fmt.Sprintf("kill %d: %s", i+1, err))
		case err != nil:
			return fmt.Errorf("kill %d: %w", i+1, err)
		default:
			elected, status, endpoint = append(elected, f.elected), append(status, f.status), append(endpoint, f.endpoint)
		}
		if (i+1)%max(1, count/4) == 0 {
			e.printf("cluster: kill %d of %d", i+1, count)
		}
	}
	e.result.Elected, e.result.Status = benchmark.NewSeries(elected), benchmark.NewSeries(status)
	e.result.Endpoint = benchmark.NewSeries(endpoint)
	return nil
}

func (e *clusterEnv) round(ctx context.Context) (failover, error) {
	if err := e.settle(ctx); err != nil {
		return failover{}, err
	}
	// A random delay keeps the rounds from hitting periodic tasks, such as resyncs and
	// heartbeats, at the same phase each time.
	if err := benchmark.Wait(ctx, rand.N(time.Second)); err != nil {
		return failover{}, err
	}
	before, victim := e.observer.coordinator()
	e.observer.begin()
	begun, err := program.KillAgent(clusterName, victim.Name)
	if err != nil {
		return failover{}, err
	}
	f, timeout := e.awaitFailover(ctx, before, begun)
	// The kubelet delays the restarts of a container more each time. Replace the pod, so
	// that the delay starts over.
	err = e.client.Delete(ctx, victim, client.GracePeriodSeconds(0), client.Preconditions{UID: &victim.UID})
	return f, errors.Join(timeout, err, e.awaitReplaced(ctx, victim))
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
	err = e.observer.await(ctx, "another pod to lead, and the Service to route to it", failoverTimeout, func() bool {
		for _, status := range e.observer.statuses {
			next := status.coordinator
			if next.Term <= before.Term || next.Pod == before.Pod || e.observer.pods[next.Pod] == nil {
				continue
			}
			route, hasRoute := e.observer.routes[e.observer.pods[next.Pod].Status.PodIP]
			elected := next.ElectedAt.Time
			f = failover{elected.Sub(begun), status.at.Sub(elected), route.Sub(elected)}
			return hasRoute
		}
		return false
	})
	return f, err
}

func (c *Cluster) judge() {
	if c.Status != nil {
		c.Goals = append(c.Goals,
			benchmark.AtMost("kill, election until status, p99", "ms", c.Status.P99, 100),
			benchmark.AtMost("kill, election until Service, p99", "ms", c.Endpoint.P99, 100))
	}
}
