package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// scaleEnv is the environment of the scale part: an API server, the manager as a process,
// and fake agents.
type scaleEnv struct {
	*runner
	server       *server
	client       client.WithWatch
	config       manifests
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
	result = &Scale{Groups: r.options.groups, Members: r.options.members, LeaderElection: r.options.leaderElect, Bystanders: r.options.bystanders}
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

// setUp builds the manager and creates its service account, with the permissions that it
// has in a deployment.
func (e *scaleEnv) setUp(ctx context.Context) error {
	e.printf("scale: building the manager")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if e.config, err = readManifests(ctx); err != nil {
		return err
	}
	deployment, err := e.config.deployment()
	if err != nil {
		return err
	}
	if e.client, err = client.NewWithWatch(e.server.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := e.config.create(ctx, e.client, "Namespace"); err != nil {
		return err
	}
	if err := e.config.create(ctx, e.client, "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"); err != nil {
		return err
	}
	if e.requests, err = newRequestCounter(ctx, e.server.admin, "manager", managerUser); err != nil {
		return err
	}
	e.manager, err = e.newManager(ctx, e.server, deployment)
	return err
}

// measureEmpty measures the manager without groups. In this run the manager creates the
// CA, which the fake agents need.
func (e *scaleEnv) measureEmpty(ctx context.Context) error {
	e.printf("scale: starting a manager without groups")
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
	e.printf("scale: creating %d groups of %d", o.groups, o.members)
	begun := time.Now()
	if e.groups, err = e.newFakeGroups(ctx, e.client, e.certificates); err != nil {
		return err
	}
	if err := e.groups.createElectionGroups(ctx); err != nil {
		return err
	}
	e.printf("scale: created the groups in %.0f s", time.Since(begun).Seconds())
	if e.observer, err = observeStatuses(ctx, e.client); err != nil {
		return err
	}
	// The manager sets the CA bundle of this configuration. The API server doesn't call
	// the webhook, because no more pods are created.
	return e.config.create(ctx, e.client, "MutatingWebhookConfiguration")
}

// start starts the manager and waits until all groups have a complete status. Before, none
// of them has a status.
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
			e.printf("scale: %d of %d agents are connected, %d of %d groups are complete", e.groups.connected(), size, count, e.options.groups)
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
	e.result.StartCPU = usage.CPU.Seconds()
	e.result.Resident = benchmark.MiB(usage.Resident)
	e.result.StreamMemory = (e.result.Resident - e.result.Empty) * 1024 / float64(size)
	e.result.StreamBytes = float64(e.groups.traffic()) / float64(size)
	e.printf("scale: all groups have a status after %.1f s; %.0f MiB resident", e.result.Start, e.result.Resident)
	return nil
}

// recordPeak includes the peak memory of the running manager in the result.
func (e *scaleEnv) recordPeak() (benchmark.Usage, error) {
	usage, err := e.manager.usage()
	e.result.Peak = max(e.result.Peak, benchmark.MiB(usage.Peak))
	return usage, err
}

// idle counts the manager's requests while nothing happens.
func (e *scaleEnv) idle(ctx context.Context) error {
	// Let the manager finish the work that the elections caused.
	if err := benchmark.Wait(ctx, 2*e.options.settle); err != nil {
		return err
	}
	e.printf("scale: counting requests for %s", e.options.idle)
	before, err := e.readings(ctx)
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, e.options.idle); err != nil {
		return err
	}
	elapsed := time.Since(before.at)
	after, err := e.readings(ctx)
	if err != nil {
		return err
	}
	e.result.Idle = &Idle{
		Seconds:  elapsed.Seconds(),
		Requests: after.requests.minus(before.requests),
		CPU:      percent(after.cpu[managerProcess]-before.cpu[managerProcess], elapsed),
		Bytes:    float64(after.traffic-before.traffic) / float64(e.groups.size()) / elapsed.Minutes(),
	}
	return nil
}

// restart stops the manager and starts it again.
func (e *scaleEnv) restart(ctx context.Context) error {
	e.printf("scale: restarting the manager")
	if _, err := e.recordPeak(); err != nil {
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
	_, err = e.recordPeak()
	return err
}

// readings are the counters that are read before and after a measurement.
type readings struct {
	at            time.Time
	requests, all Requests
	cpu           map[string]time.Duration
	traffic       int64
}

const managerProcess = "manager"

// percent returns a share of a duration in percent, rounded to tenths.
func percent(part, whole time.Duration) float64 {
	return math.Round(1000*float64(part)/float64(whole)) / 10
}

func (e *scaleEnv) readings(ctx context.Context) (r readings, err error) {
	if r.requests, err = e.requests.count(ctx); err != nil {
		return r, err
	}
	if r.all, err = countAll(ctx, e.server.admin); err != nil {
		return r, err
	}
	r.traffic = e.groups.traffic()
	pids := map[string]int{managerProcess: e.manager.process.Process.Pid, "fake agents": os.Getpid()}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if pids[name], err = childPID(name); err != nil {
			return r, err
		}
	}
	r.cpu = map[string]time.Duration{}
	for name, pid := range pids {
		usage, err := benchmark.UsageOf(pid)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.cpu[name] = usage.CPU
	}
	r.at = time.Now()
	return r, nil
}
