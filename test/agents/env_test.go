package agents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// env is a running group: agents with an application each, the storage that the coordinator writes, and clients.
type env struct {
	t       *testing.T
	ctx     context.Context
	cluster *testGroup
	storage *storage
	history *history
	// name identifies the group among others in a test.
	name, mode string
	// register is the register that clients currently use. It changes with each fault, so
	// that the checker has many short histories instead of a long one.
	register atomic.Int64
	values   atomic.Int64
	// slowest is the duration of the slowest recovery.
	slowest time.Duration

	mutex        sync.Mutex
	applications map[string]*application
	// former are the applications that were killed.
	former       []*application
	incarnations int
	events       []string
}

// timing is short, so that the test can inject many faults in a minute. The drain timeout is longer than a lease.
var timing = agentcluster.Timing{HeartbeatMillis: 20, DrainMillis: new(int32(300))}

const leaseMillis = 150

func newEnv(t *testing.T, mode string, agents int, policy string) *env {
	t.Helper()
	stable := 0
	if policy == "WhenStable" {
		stable = 1000
	}
	group := agentcluster.Group{
		Safety:     agentcluster.Safety{Mode: mode, LeaseMillis: leaseMillis},
		Preemption: agentcluster.Preemption{Policy: policy, StableMillis: new(int32(stable))},
		Timing:     timing,
	}
	e := &env{
		t: t, name: fmt.Sprintf("of %d, %s", agents, policy), mode: mode,
		cluster: newGroup(t, agentcluster.Options{Agents: agents, TLS: true, Group: group}),
		storage: newStorage(), history: newHistory(), applications: map[string]*application{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.ctx = ctx
	must.Succeed(t, e.cluster.Start())
	for _, name := range e.cluster.Names() {
		e.startApplication(name)
	}
	var clients sync.WaitGroup
	clients.Go(e.runClients)
	t.Cleanup(func() {
		cancel()
		clients.Wait()
		for _, a := range e.former {
			a.goroutines.Wait()
		}
		for _, a := range e.applications {
			a.goroutines.Wait()
		}
	})
	return e
}

// startApplication starts an agent's application, or a new incarnation of it.
func (e *env) startApplication(name string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.incarnations++
	if former := e.applications[name]; former != nil {
		e.former = append(e.former, former)
	}
	e.applications[name] = newApplication(e.ctx, e.cluster.Cluster, e.storage, name, e.incarnations, e.mode == "Available")
}

func (e *env) application(name string) *application {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.applications[name]
}

// runClients sends requests at a constant rate to each application that is coordinator.
func (e *env) runClients() {
	const interval = 4 * time.Millisecond
	// maxPending limits the pending requests to one application.
	const maxPending = 3
	var pending sync.WaitGroup
	defer pending.Wait()
	queues := map[string]chan struct{}{}
	for _, name := range e.cluster.Names() {
		queues[name] = make(chan struct{}, maxPending)
	}
	next := time.NewTicker(interval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-e.ctx.Done():
			return
		}
		for _, name := range e.cluster.Names() {
			a := e.application(name)
			if !a.isLeading() {
				continue
			}
			select {
			case queues[name] <- struct{}{}:
				pending.Go(func() {
					e.sendRequest(a)
					<-queues[name]
				})
			default:
			}
		}
	}
}

// sendRequest sends one request and adds it to the history, unless it had no effect.
func (e *env) sendRequest(a *application) {
	const requestsPerWrite = 4
	r := request{register: int(e.register.Load()), at: a.agent}
	call := e.history.now()
	if number := int(e.values.Add(1)); rand.IntN(requestsPerWrite) == 0 {
		r.write, r.value = true, number
		err := a.write(r.register, number)
		if err == nil {
			e.history.add(r, number, call, e.history.now())
		} else if errors.Is(err, errDead) {
			e.history.add(r, number, call, noResponse)
		}
		return
	}
	if value, err := a.read(r.register); err == nil {
		e.history.add(r, value, call, e.history.now())
	}
}

// logEvent records an event that helps to explain a failure.
func (e *env) logEvent(format string, arguments ...any) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.events = append(e.events,
		fmt.Sprintf("%s register %d: ", time.Duration(e.history.now()), e.register.Load())+fmt.Sprintf(format, arguments...))
}

func (e *env) eventLog() string {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return strings.Join(e.events, "\n")
}

// leader returns an agent whose application is coordinator, or a random agent if there is none.
func (e *env) leader(rng *rand.Rand) string {
	names := e.cluster.Names()
	for _, at := range rng.Perm(len(names)) {
		if e.application(names[at]).isLeading() {
			return names[at]
		}
	}
	return names[rng.IntN(len(names))]
}

// awaitRecovery waits until the coordinator accepts writes again, after all faults were repaired.
func (e *env) awaitRecovery() error {
	const limit = 2 * time.Minute
	start := time.Now()
	defer func() { e.slowest = max(e.slowest, time.Since(start)) }()
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	_, before := e.storage.counts()
	if _, err := e.cluster.AwaitCoordinator(ctx); err != nil {
		return err
	}
	return agentcluster.Await(ctx, func(context.Context) error {
		if _, now := e.storage.counts(); now == before {
			return errors.New("the coordinator's application accepts no writes")
		}
		return nil
	})
}

func (e *env) verify() error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	err := errors.Join(e.storage.verify(), e.history.verify())
	for _, a := range e.former {
		err = errors.Join(err, a.verify())
	}
	for _, a := range e.applications {
		err = errors.Join(err, a.verify())
	}
	return err
}
