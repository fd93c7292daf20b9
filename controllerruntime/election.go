package controllerruntime

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/controllerruntime/internal/exit"
	"github.com/conclave-dev/conclave/controllerruntime/lease"
)

// retryPeriod is how often the manager's elector asks the lock. Nothing depends on it: Run stops the manager.
const retryPeriod = 250 * time.Millisecond

// Election is the part that one process takes in the election of a group.
type Election struct {
	group    string
	identity string
	options  []client.Option
	log      *slog.Logger
	// api is nil unless the process also holds a Lease.
	api *rest.Config

	mu sync.Mutex
	// current is the manager of the last call of Options.
	current *candidate
}

// candidate is one manager in the election.
type candidate struct {
	*Election

	// lease is nil unless the process also holds a Lease, and invalid is why it can't.
	lease   *leaderelection.LeaderElectionConfig
	invalid error
	// ready is closed once the manager is ready to be elected.
	ready     chan struct{}
	readyOnce sync.Once
	// running is set once Run was called, and closing once the manager must stop. The channel stopped is closed once it
	// has. The mutex of the election is for these fields, too.
	running, closing bool
	stopped          chan struct{}
	// handedOver is set if the manager was told to stop because the office is to be handed over. It belongs to the
	// goroutine that takes part.
	handedOver bool
	// tenure is nil unless the agent has made this process coordinator. began is closed and replaced when a tenure begins.
	tenure *tenure
	began  chan struct{}
}

// tenure is the time for which this process is coordinator.
type tenure struct {
	ctx   context.Context
	token uint64
	// acquired is set once the manager's elector has the lock, so that controllers may run.
	acquired bool
}

// New returns the election of a group, whose name is that of the ElectionGroup. The options are those of package
// client, such as client.At.
func New(group string, options ...client.Option) *Election {
	host, _ := os.Hostname() // It is for logs.
	logger := slog.New(logr.ToSlogHandler(log.Log.WithName("conclave").WithValues("group", group)))
	return &Election{
		group: group, identity: host + "_" + rand.Text(),
		options: append([]client.Option{client.LogTo(logger)}, options...), log: logger,
	}
}

// AlsoHold lets managers work only while this process holds the Lease, too, that they had before: with the options'
// LeaderElectionID, LeaderElectionNamespace, LeaseDuration, RenewDeadline and RetryPeriod, which must be those of the
// other replicas. See [lease.AlsoHold]. Call it before Options.
func (e *Election) AlsoHold(api *rest.Config) *Election {
	e.api = api
	return e
}

// Options returns the options of one manager that takes part in the election: the given ones with another lock. Unless
// these set Controller.EnableWarmup to false, a standby fills the caches of its controllers, and its work queues, which
// take memory. A GracefulShutdownTimeout of 0 lets Run return an error, since controllers then may still run.
// Controllers of a later manager may have the names of those of the first one.
func (e *Election) Options(options manager.Options) manager.Options {
	e.mu.Lock()
	defer e.mu.Unlock()
	again := e.current != nil
	c := &candidate{Election: e, ready: make(chan struct{}), stopped: make(chan struct{}), began: make(chan struct{})}
	e.current = c
	if e.api != nil {
		c.lease, c.invalid = e.leaseOf(options)
	}
	if timeout := options.GracefulShutdownTimeout; timeout != nil && *timeout == 0 {
		shortest := time.Nanosecond
		options.GracefulShutdownTimeout = &shortest // With 0, Start returns nil while controllers run.
	}
	options.LeaderElection = true
	options.LeaderElectionResourceLockInterface = lock{c}
	options.LeaderElectionID = cmp.Or(options.LeaderElectionID, e.group)
	options.LeaderElectionReleaseOnCancel = false // Run releases the office after the manager has stopped.
	retry, warmup := retryPeriod, true
	// The default ones: a manager that was configured for a short Lease must not exit when it lacks CPU time for that
	// long.
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = nil, nil, &retry
	if options.Controller.EnableWarmup == nil {
		options.Controller.EnableWarmup = &warmup
	}
	if again && options.Controller.SkipNameValidation == nil {
		options.Controller.SkipNameValidation = &again
	}
	return options
}

// Token returns the fencing token of the tenure, and 0 unless this process is coordinator.
func (e *Election) Token() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil || !e.current.acquired() {
		return 0
	}
	return e.current.tenure.token
}

// acquired reports whether controllers may run. The caller holds the mutex, as for acquirable.
func (c *candidate) acquired() bool { return c.tenure != nil && c.tenure.acquired }

// acquirable reports whether the manager's elector may acquire the lock.
func (c *candidate) acquirable() bool {
	return c.tenure != nil && !c.closing && c.tenure.ctx.Err() == nil
}

// RunManagers runs a manager until the office is to be handed over and the manager has stopped. Then it runs another
// one, and so on until ctx ends, so the process needn't exit. newManager creates each of them with the options that
// Options returns, and adds the controllers.
//
// RunManagers returns nil if ctx has ended. After an error, the process must exit: controllers may still run.
func (e *Election) RunManagers(ctx context.Context, newManager func() (manager.Manager, error)) error {
	for {
		m, err := newManager()
		if err != nil {
			return err
		}
		if handedOver, err := e.runManager(ctx, m.Start); !handedOver {
			return err
		}
	}
}

// Run calls start, the method Start of a manager, and cancels its context when the office is to be handed over. When
// start has returned nil, nothing of it may run any more, and Run releases the office.
//
// Run returns nil if ctx has ended. Otherwise, it returns the error of start, or why the context of start has ended.
// After an error, the process must exit: controllers may still run, and Run can't be called again for this manager.
func (e *Election) Run(ctx context.Context, start func(context.Context) error) error {
	_, err := e.runManager(ctx, start)
	return err
}

// runManager is Run. It also reports whether the manager has stopped because the office was handed over.
func (e *Election) runManager(ctx context.Context, start func(context.Context) error) (handedOver bool, err error) {
	c, err := e.next()
	if err != nil {
		return false, err
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The session with the agent goes on until the manager has stopped, if controllers may run.
	session, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	context.AfterFunc(work, func() {
		if c.close() {
			leave()
		}
	})
	left := make(chan struct{})
	go func() {
		defer close(left)
		select {
		case <-c.ready:
			if err := c.takePart(session, cancel); err != nil {
				cancel(fmt.Errorf("cannot take part in the election: %w", err))
			}
		case <-session.Done():
		}
	}()

	if err := start(work); err != nil {
		// A manager whose controllers don't stop in time returns an error, while they still run. So the tenure doesn't end:
		// it ends with this process, or the process ends after the group's drain timeout.
		return false, err
	}
	cause := context.Cause(work)
	c.hasStopped()
	leave()
	<-left
	if ctx.Err() != nil {
		return false, nil
	}
	return c.handedOver, cause
}

// next returns the manager that is to run.
func (e *Election) next() (*candidate, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.current == nil:
		return nil, errors.New("the manager isn't one of the election: create it with the options that Options returns")
	case e.current.running:
		return nil, errors.New("a manager runs once: create another one with the options that Options returns")
	}
	e.current.running = true
	return e.current, e.current.invalid
}

// close prevents that a manager that must stop is elected. It reports whether no controller runs.
func (c *candidate) close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	return !c.acquired()
}

// takePart takes part in the election until ctx ends. It calls cancel when the manager must stop.
func (c *candidate) takePart(ctx context.Context, cancel context.CancelCauseFunc) error {
	limit := newLimit(func() { c.end("the manager has not stopped in time") })
	defer limit.stop()
	options := append(c.options, client.OnRenewal(func(r client.Renewal) {
		limit.renew(r)
		if r.Ended {
			c.end("the tenure has ended")
		}
	}))
	lead := func(ctx context.Context, token uint64) error {
		c.begin(&tenure{ctx: ctx, token: token})
		select {
		case <-ctx.Done():
		case <-c.stopped:
			return nil
		}
		cause := context.Cause(ctx)
		if c.withdraw() {
			return cause // No controller has run, so this process may be elected again.
		}
		switch {
		case errors.Is(cause, lease.ErrNotRenewed): // It has its own limit.
		case errors.Is(cause, client.ErrStop), errors.Is(cause, context.Canceled):
			limit.drain()
		default:
			c.end(cause.Error())
		}
		c.handedOver = true
		cancel(fmt.Errorf("this process is no longer coordinator of group %s: %w", c.group, cause))
		<-c.stopped
		return cause
	}
	if c.lease != nil {
		lead = lease.AlsoHold(*c.lease, lead)
	}
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(c.log.Handler())) // for client-go
	for {
		err := client.Run(ctx, c.group, lead, options...)
		if !errors.Is(err, lease.ErrUnavailable) {
			return err
		}
		c.log.Warn("gave the office up", "reason", err)
	}
}

// begin lets the manager's elector acquire the lock.
func (c *candidate) begin(t *tenure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenure = t
	close(c.began)
	c.began = make(chan struct{})
}

// withdraw ends a tenure for which the manager's elector hasn't acquired the lock. It reports whether that is so.
func (c *candidate) withdraw() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acquired() {
		return false
	}
	c.tenure = nil
	return true
}

// hasStopped notes that nothing of the manager runs.
func (c *candidate) hasStopped() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenure = nil
	close(c.stopped)
}

// end ends the process if controllers may run: another process may be coordinator now or soon.
func (c *candidate) end(reason string) {
	c.mu.Lock()
	acquired := c.acquired()
	c.mu.Unlock()
	if !acquired {
		return
	}
	exit.Now(c.log, reason)
}
