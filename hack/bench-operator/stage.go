package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// stage is what all the acts of a scale part need.
type stage struct {
	*measurer
	server   *server
	client   client.WithWatch
	config   deployed
	manager  *manager
	requests *meter
	world    *world
	audience *audience
	scale    *Scale
	wardrobe *fakeagent.CertificateFactory
}

func (m *measurer) scale(ctx context.Context, s *server) (scale *Scale, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	scale = &Scale{Groups: m.options.groups, Members: m.options.members, LeaderElection: m.options.leaderElect, Bystanders: m.options.bystanders}
	st := &stage{measurer: m, server: s, scale: scale}
	// Also when the benchmark was interrupted.
	defer func() { err = errors.Join(err, st.strike(context.WithoutCancel(ctx))) }()
	for _, act := range []func(context.Context) error{
		st.build, st.lookAtEmpty, st.populate, st.start, st.elections, st.idle, st.restart,
	} {
		if err := act(ctx); err != nil {
			return nil, err
		}
	}
	scale.judge()
	return scale, nil
}

// strike ends all that was started.
func (st *stage) strike(ctx context.Context) (err error) {
	if st.manager != nil {
		err = st.manager.stop(ctx)
	}
	if st.world != nil {
		err = errors.Join(err, st.world.close())
	}
	return err
}

// build makes the manager, and the API server know it with the rights that it
// has when deployed.
func (st *stage) build(ctx context.Context) error {
	st.say("scale: building the manager")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if st.config, err = readConfig(ctx); err != nil {
		return err
	}
	deployment, err := st.config.deployment()
	if err != nil {
		return err
	}
	if st.client, err = client.NewWithWatch(st.server.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := st.config.create(ctx, st.client, "Namespace"); err != nil {
		return err
	}
	if err := st.config.create(ctx, st.client, "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"); err != nil {
		return err
	}
	if st.requests, err = newMeter(ctx, st.server.admin, "manager", managerUser); err != nil {
		return err
	}
	st.manager, err = st.newManager(ctx, st.server, deployment)
	return err
}

// lookAtEmpty starts the manager with nothing to do: it makes its authority.
func (st *stage) lookAtEmpty(ctx context.Context) error {
	st.say("scale: starting a manager without groups")
	if err := st.manager.start(); err != nil {
		return err
	}
	secret := &corev1.Secret{}
	err := st.manager.await(ctx, "the manager has made its authority", patience, func() (bool, error) {
		err := st.client.Get(ctx, client.ObjectKey{Namespace: system, Name: "conclave-ca"}, secret)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, st.options.settle); err != nil {
		return err
	}
	usage, err := st.manager.usage()
	if err != nil {
		return err
	}
	st.scale.Empty = benchmark.MiB(usage.Resident)
	if err := st.manager.stop(ctx); err != nil {
		return err
	}
	wardrobe, err := authorityOf(secret)
	st.wardrobe = wardrobe
	return err
}

// populate makes groups and pods, while no manager runs.
func (st *stage) populate(ctx context.Context) (err error) {
	o := st.options
	st.say("scale: making %d groups of %d", o.groups, o.members)
	begun := time.Now()
	if st.world, err = st.newWorld(ctx, st.client, st.wardrobe); err != nil {
		return err
	}
	if err := st.world.declare(ctx); err != nil {
		return err
	}
	st.say("scale: that took %.0f s", time.Since(begun).Seconds())
	if st.audience, err = attend(ctx, st.client); err != nil {
		return err
	}
	// The manager has to tell it something; nothing calls it, since no more pods are made.
	return st.config.create(ctx, st.client, "MutatingWebhookConfiguration")
}

// start waits until all groups have a status, of which none had one before.
func (st *stage) start(ctx context.Context) error {
	size := st.world.size()
	if err := st.manager.start(); err != nil {
		return err
	}
	elected := make(chan error, 1)
	go func() { elected <- st.world.electFirst(ctx) }()
	said := time.Now()
	limit := patience + time.Duration(size)*20*time.Millisecond
	err := st.manager.await(ctx, "every group's status is complete", limit, func() (bool, error) {
		count, err := st.audience.completed()
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			st.say("scale: %d of %d agents are heard, %d of %d groups are complete", st.world.heard(), size, count, st.options.groups)
		}
		return count == st.options.groups, err
	})
	st.scale.Start = time.Since(st.manager.began).Seconds()
	if err != nil {
		return err
	}
	if err := <-elected; err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, st.options.settle); err != nil {
		return err
	}
	usage, err := st.manager.usage()
	if err != nil {
		return err
	}
	st.scale.StartCPU = usage.CPU.Seconds()
	st.scale.Resident = benchmark.MiB(usage.Resident)
	st.scale.StreamMemory = (st.scale.Resident - st.scale.Empty) * 1024 / float64(size)
	st.scale.StreamBytes = float64(st.world.traffic()) / float64(size)
	st.say("scale: all groups have a status after %.1f s; %.0f MiB resident", st.scale.Start, st.scale.Resident)
	return nil
}

// elections has random groups elect, at a steady rate.
func (st *stage) elections(ctx context.Context) error {
	o := st.options
	st.say("scale: %g elections a second for %s", o.rate, o.elections)
	before, err := st.readings(ctx)
	if err != nil {
		return err
	}
	e := &Elections{}
	profiled := make(chan error, 1)
	go func() { profiled <- st.server.profile(ctx, o.profile, o.elections) }()
	if err := errors.Join(st.elect(ctx, e), <-profiled); err != nil {
		return err
	}
	elapsed := time.Since(before.at)
	after, err := st.readings(ctx)
	if err != nil {
		return err
	}
	lags, missed := st.audience.result()
	st.scale.Failures = append(st.scale.Failures, missed...)
	e.Lag, e.Seconds = benchmark.NewSeries(lags), elapsed.Seconds()
	e.Requests = after.requests.since(before.requests).per(e.Count)
	e.All = after.all.since(before.all).per(e.Count)
	e.Bytes = float64(after.traffic-before.traffic) / float64(max(e.Count, 1))
	e.CPU, e.Cost = map[string]float64{}, map[string]float64{}
	for name, used := range after.cpu {
		e.CPU[name] = percent(used-before.cpu[name], elapsed)
		e.Cost[name] = math.Round(100*benchmark.Millis(used-before.cpu[name])/float64(max(e.Count, 1))) / 100
	}
	st.scale.Elections = e
	usage, err := st.manager.usage()
	st.scale.End, st.scale.Peak = benchmark.MiB(usage.Resident), benchmark.MiB(usage.Peak)
	return err
}

// elect returns when all elections have been seen, or had time enough.
func (st *stage) elect(ctx context.Context, e *Elections) error {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / st.options.rate))
	defer ticker.Stop()
	var work sync.WaitGroup
	failed := make(chan error, 1)
	for until := time.After(st.options.elections); until != nil; {
		select {
		case <-ticker.C:
			g := st.world.groups[rand.IntN(len(st.world.groups))]
			w := st.next(g)
			if !st.audience.await(g.key, w) {
				e.Skipped++
				continue
			}
			e.Count++
			work.Go(func() {
				if err := st.hold(ctx, g, w); err != nil {
					select {
					case failed <- err:
					default: // One says it.
					}
				}
			})
		case err := <-failed:
			return err
		case <-until:
			until = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	work.Wait()
	// Those that aren't seen within this are reported by name.
	deadline := time.Now().Add(30 * time.Second)
	return st.manager.await(ctx, "the last elections are seen", patience, func() (bool, error) {
		left, err := st.audience.outstanding()
		return left == 0 || time.Now().After(deadline), err
	})
}

// next is another one than the last, in a term that follows.
func (st *stage) next(g *ledger) awaited {
	term := max(uint64(st.audience.term(g.key))+1, termAt(time.Now())) //nolint:gosec // terms aren't negative
	g.led = (g.led + 1 + rand.IntN(max(len(g.pods)-1, 1))) % len(g.pods)
	return awaited{coordinator: g.pods[g.led], term: int64(term)} //nolint:gosec // nor that large
}

// without is how long nobody leads in an election: as long as five real agents
// take after a kill.
const without = 1500 * time.Microsecond

// hold holds an election: for a moment nobody leads, and then another one does.
func (st *stage) hold(ctx context.Context, g *ledger, w awaited) error {
	term := uint64(w.term) //nolint:gosec // terms aren't negative
	if err := g.miss(term); err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, without); err != nil {
		return err
	}
	st.audience.begin(g.key, time.Now())
	return g.elect(w.coordinator, term)
}

// idle counts what the manager asks for while nothing happens.
func (st *stage) idle(ctx context.Context) error {
	// What the elections left to do, and then a while.
	if err := benchmark.Wait(ctx, 2*st.options.settle); err != nil {
		return err
	}
	st.say("scale: counting requests for %s", st.options.idle)
	before, err := st.readings(ctx)
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, st.options.idle); err != nil {
		return err
	}
	elapsed := time.Since(before.at)
	after, err := st.readings(ctx)
	if err != nil {
		return err
	}
	st.scale.Idle = &Idle{
		Seconds:  elapsed.Seconds(),
		Requests: after.requests.since(before.requests),
		CPU:      percent(after.cpu[managerProcess]-before.cpu[managerProcess], elapsed),
		Bytes:    float64(after.traffic-before.traffic) / float64(st.world.size()) / elapsed.Minutes(),
	}
	return nil
}

// restart ends the manager and starts another one.
func (st *stage) restart(ctx context.Context) error {
	st.say("scale: restarting the manager")
	if err := st.manager.stop(ctx); err != nil {
		return err
	}
	for gone := time.Now().Add(patience); st.world.heard() > 0; {
		if time.Now().After(gone) {
			return errors.New("the manager has ended, and some of its streams haven't")
		}
		if err := benchmark.Wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	before, err := st.requests.count(ctx)
	if err != nil {
		return err
	}
	changes := st.audience.changes()
	if err := st.manager.start(); err != nil {
		return err
	}
	err = st.manager.await(ctx, "all agents are heard again", patience, func() (bool, error) {
		return st.world.heard() == st.world.size(), nil
	})
	heard := time.Since(st.manager.began)
	if err != nil {
		return err
	}
	if err := benchmark.Wait(ctx, 2*st.options.settle); err != nil {
		return err
	}
	after, err := st.requests.count(ctx)
	if err != nil {
		return err
	}
	st.scale.Restart = &Restart{
		Heard: heard.Seconds(), Changes: st.audience.changes() - changes,
		Requests: after.since(before),
	}
	return nil
}

// readings are all that is read before and after something.
type readings struct {
	at            time.Time
	requests, all Requests
	cpu           map[string]time.Duration
	traffic       int64
}

const managerProcess = "manager"

// percent is a share, in tenths.
func percent(of, whole time.Duration) float64 {
	return math.Round(1000*float64(of)/float64(whole)) / 10
}

func (st *stage) readings(ctx context.Context) (r readings, err error) {
	if r.requests, err = st.requests.count(ctx); err != nil {
		return r, err
	}
	if r.all, err = countAll(ctx, st.server.admin); err != nil {
		return r, err
	}
	r.traffic = st.world.traffic()
	pids := map[string]int{managerProcess: st.manager.process.Process.Pid, "stand-ins": os.Getpid()}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if pids[name], err = child(name); err != nil {
			return r, err
		}
	}
	r.cpu = map[string]time.Duration{}
	for name, pid := range pids {
		used, err := benchmark.UsageOf(pid)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		r.cpu[name] = used.CPU
	}
	r.at = time.Now()
	return r, nil
}
