package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/manifests"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// scaleEnv is the environment of the scale part: an API server, the manager as a process, and fake agents.
type scaleEnv struct {
	*runner
	server       *server
	client       client.WithWatch
	manifests    []*unstructured.Unstructured
	manager      *manager
	requests     *requestCounter
	groups       *fakeGroups
	observer     *statusObserver
	result       *Scale
	certificates *fakeagent.CertificateFactory
}

func (r *runner) scale(ctx context.Context, s *server) (result *Scale, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result = &Scale{Groups: r.options.groups, Members: r.options.members}
	env := &scaleEnv{runner: r, server: s, result: result}
	// Clean up even if the benchmark was interrupted.
	defer func() { err = errors.Join(err, env.close(context.WithoutCancel(ctx))) }()
	for _, step := range []func(context.Context) error{
		env.setUp, env.measureEmpty, env.createGroups, env.start, env.elections, env.idle, env.restart,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	result.judge()
	return result, nil
}

// close stops the manager and the fake agents.
func (e *scaleEnv) close(ctx context.Context) (err error) {
	if e.manager != nil {
		err = e.manager.stop(ctx)
	}
	if e.groups != nil {
		err = errors.Join(err, e.groups.close())
	}
	return err
}

// setUp builds the manager and creates its service account, with the permissions that it has in a deployment.
func (e *scaleEnv) setUp(ctx context.Context) error {
	e.printf("building the manager")
	var err error
	if e.manifests, err = manifests.Build(ctx, ".", "config/default"); err != nil {
		return err
	}
	if e.client, err = client.NewWithWatch(e.server.config, client.Options{Scheme: testclient.Scheme()}); err != nil {
		return err
	}
	if err := e.create(ctx, "Namespace"); err != nil {
		return err
	}
	if err := e.create(ctx, "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"); err != nil {
		return err
	}
	if e.requests, err = newRequestCounter(ctx, e.server.admin, "manager", managerUser); err != nil {
		return err
	}
	deployment, err := e.deployment()
	if err != nil {
		return err
	}
	e.manager, err = e.newManager(ctx, e.server, deployment)
	return err
}

// create creates the objects of these kinds.
func (e *scaleEnv) create(ctx context.Context, kinds ...string) error {
	for _, object := range e.manifests {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		if err := e.client.Create(ctx, object.DeepCopy()); err != nil {
			return fmt.Errorf("cannot create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// deployment returns the manager's Deployment.
func (e *scaleEnv) deployment() (*appsv1.Deployment, error) {
	for _, object := range e.manifests {
		if object.GetKind() == "Deployment" && object.GetName() == managerName {
			found := &appsv1.Deployment{}
			return found, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found)
		}
	}
	return nil, fmt.Errorf("config/default must contain a Deployment %s", managerName)
}

// measureEmpty measures the manager without groups. In this run the manager creates the CA, which the fake agents need.
func (e *scaleEnv) measureEmpty(ctx context.Context) error {
	e.printf("starting a manager without groups")
	if err := e.manager.start(); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	err := e.manager.await(ctx, "the manager to create its CA", waitMax, func() (bool, error) {
		err := e.client.Get(ctx, client.ObjectKey{Namespace: system, Name: "conclave-ca"}, secret)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, e.options.settle); err != nil {
		return err
	}
	usage, err := e.manager.usage()
	if err != nil {
		return err
	}
	e.result.Empty = benchmark.MiB(usage.Resident)
	if err := e.manager.stop(ctx); err != nil {
		return err
	}
	e.certificates, err = certificatesFrom(secret)
	return err
}

// createGroups creates groups and pods while no manager runs.
func (e *scaleEnv) createGroups(ctx context.Context) (err error) {
	o := e.options
	e.printf("creating %d groups of %d", o.groups, o.members)
	begun := time.Now()
	if e.groups, err = e.newFakeGroups(ctx, e.client, e.certificates); err != nil {
		return err
	}
	if err := e.groups.createElectionGroups(ctx); err != nil {
		return err
	}
	e.printf("created the groups in %.0f s", time.Since(begun).Seconds())
	if e.observer, err = observeStatuses(ctx, e.client); err != nil {
		return err
	}
	// The manager sets the CA bundle of this configuration. The API server doesn't call
	// the webhook, because no more pods are created.
	return e.create(ctx, "MutatingWebhookConfiguration")
}

// start starts the manager and waits until all groups have a complete status. Before, none of them has a status.
func (e *scaleEnv) start(ctx context.Context) error {
	size := e.groups.size()
	if err := e.manager.start(); err != nil {
		return err
	}
	elected := make(chan error, 1)
	go func() { elected <- e.groups.electFirst(ctx) }()
	printed := time.Now()
	limit := waitMax + time.Duration(size)*20*time.Millisecond
	err := e.manager.await(ctx, "the status of every group to be complete", limit, func() (bool, error) {
		count, err := e.observer.completeGroups()
		if time.Since(printed) > 10*time.Second {
			printed = time.Now()
			e.printf("%d of %d agents are connected, %d of %d groups are complete", e.groups.connected(),
				size, count, e.options.groups)
		}
		return count == e.options.groups, err
	})
	e.result.Start = time.Since(e.manager.began).Seconds()
	if err != nil {
		return err
	}
	if err := <-elected; err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, e.options.settle); err != nil {
		return err
	}
	usage, err := e.manager.usage()
	if err != nil {
		return err
	}
	e.result.Resident = benchmark.MiB(usage.Resident)
	e.result.StreamMemory = (e.result.Resident - e.result.Empty) * 1024 / float64(size)
	e.printf("all groups have a status after %.1f s; %.0f MiB resident", e.result.Start, e.result.Resident)
	return nil
}

// recordPeak includes the peak memory of the running manager in the result.
func (e *scaleEnv) recordPeak() error {
	usage, err := e.manager.usage()
	e.result.Peak = max(e.result.Peak, benchmark.MiB(usage.Peak))
	return err
}

// idle counts the manager's requests while nothing happens.
func (e *scaleEnv) idle(ctx context.Context) error {
	// Let the manager finish the work that the elections caused.
	if err := benchmark.Wait(ctx, 2*e.options.settle); err != nil {
		return err
	}
	e.printf("counting requests for %s", e.options.idle)
	elapsed, requests, err := e.requests.during(ctx, e.options.idle)
	e.result.Idle = &Idle{Seconds: elapsed.Seconds(), Requests: requests}
	return err
}

// restart stops the manager and starts it again.
func (e *scaleEnv) restart(ctx context.Context) error {
	e.printf("restarting the manager")
	if err := e.recordPeak(); err != nil {
		return err
	}
	if err := e.manager.stop(ctx); err != nil {
		return err
	}
	for deadline := time.Now().Add(waitMax); e.groups.connected() > 0; {
		if time.Now().After(deadline) {
			return errors.New("the manager has exited, but some of its streams are still open")
		}
		if err := benchmark.Wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	before, err := e.requests.count(ctx)
	if err != nil {
		return err
	}
	changes := e.observer.changes()
	if err := e.manager.start(); err != nil {
		return err
	}
	err = e.manager.await(ctx, "all agents to be connected again", waitMax, func() (bool, error) {
		return e.groups.connected() == e.groups.size(), nil
	})
	connected := time.Since(e.manager.began)
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, 2*e.options.settle); err != nil {
		return err
	}
	after, err := e.requests.count(ctx)
	if err != nil {
		return err
	}
	if _, err := e.observer.completeGroups(); err != nil { // Without its watch, it would see no changes.
		return err
	}
	e.result.Restart = &Restart{
		Connected: connected.Seconds(), Changes: e.observer.changes() - changes,
		Requests: after.minus(before),
	}
	return e.recordPeak()
}
