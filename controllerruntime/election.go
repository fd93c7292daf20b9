package controllerruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/conclave-dev/conclave/client"
)

const (
	// retryPeriod is how often the manager's elector asks the lock. Nothing depends on it: Run stops the manager.
	retryPeriod = 250 * time.Millisecond
	// logTimeout bounds how long the exit of the process waits for a log that nobody reads.
	logTimeout = 10 * time.Millisecond
)

// Election is the part that one process takes in the election of a group.
type Election struct {
	group    string
	identity string
	options  []client.Option
	log      *slog.Logger

	// ready is closed once the manager is ready to be elected.
	ready     chan struct{}
	readyOnce sync.Once

	mu sync.Mutex
	// configured is set once Options was called, running once Run was, and closing once the manager must stop. The channel
	// stopped is closed once it has.
	configured, running, closing bool
	stopped                      chan struct{}
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
	host, _ := os.Hostname() // The identity is for logs.
	logger := slog.New(logr.ToSlogHandler(log.Log.WithName("conclave").WithValues("group", group)))
	return &Election{
		group: group, identity: fmt.Sprintf("%s_%d", host, os.Getpid()),
		options: append([]client.Option{client.LogTo(logger)}, options...),
		log:     logger, ready: make(chan struct{}), stopped: make(chan struct{}), began: make(chan struct{}),
	}
}

// Options returns the options of a manager that takes part in the election: the given ones with another lock. Unless
// these set Controller.EnableWarmup to false, a standby fills the caches of its controllers, and its work queues, which
// take memory. A GracefulShutdownTimeout of 0 lets Run return an error, since controllers then may still run.
func (e *Election) Options(options manager.Options) manager.Options {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.configured = true
	if timeout := options.GracefulShutdownTimeout; timeout != nil && *timeout == 0 {
		shortest := time.Nanosecond
		options.GracefulShutdownTimeout = &shortest // With 0, Start returns nil while controllers run.
	}
	options.LeaderElection = true
	options.LeaderElectionResourceLockInterface = lock{e}
	options.LeaderElectionID = cmp.Or(options.LeaderElectionID, e.group)
	options.LeaderElectionReleaseOnCancel = false // Run releases the office after the manager has stopped.
	retry, warmup := retryPeriod, true
	// The default ones: a manager that was configured for a short Lease must not exit when it lacks CPU time for that
	// long.
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = nil, nil, &retry
	if options.Controller.EnableWarmup == nil {
		options.Controller.EnableWarmup = &warmup
	}
	return options
}

// Token returns the fencing token of the tenure, and 0 unless this process is coordinator.
func (e *Election) Token() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.acquired() {
		return 0
	}
	return e.tenure.token
}

// acquired reports whether controllers may run. The caller holds the mutex, as for acquirable.
func (e *Election) acquired() bool { return e.tenure != nil && e.tenure.acquired }

// acquirable reports whether the manager's elector may acquire the lock.
func (e *Election) acquirable() bool {
	return e.tenure != nil && !e.closing && e.tenure.ctx.Err() == nil
}

// Run calls start, the method Start of a manager, and cancels its context when the office is to be handed over. When
// start has returned nil, nothing of it may run any more, and Run releases the office.
//
// Run returns nil if ctx has ended. Otherwise, it returns the error of start, or why the context of start has ended.
// After an error, the process must exit: controllers may still run, and Run can't be called again.
func (e *Election) Run(ctx context.Context, start func(context.Context) error) error {
	if err := e.run(); err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The session with the agent goes on until the manager has stopped, if controllers may run.
	session, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	context.AfterFunc(work, func() {
		if e.close() {
			leave()
		}
	})
	left := make(chan struct{})
	go func() {
		defer close(left)
		select {
		case <-e.ready:
			if err := e.takePart(session, cancel); err != nil {
				cancel(fmt.Errorf("cannot take part in the election: %w", err))
			}
		case <-session.Done():
		}
	}()

	err := start(work)
	if err != nil {
		// A manager whose controllers don't stop in time returns an error, while they still run. So the tenure doesn't end:
		// it ends with this process, or the process ends after the group's drain timeout.
		return err
	}
	cause := context.Cause(work)
	close(e.stopped)
	leave()
	<-left
	if ctx.Err() != nil {
		return nil
	}
	return cause
}

func (e *Election) run() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.configured:
		return errors.New("the manager isn't one of the election: create it with the options that Options returns")
	case e.running:
		return errors.New("an election runs once: create another one with New")
	}
	e.running = true
	return nil
}

// close prevents that a manager that must stop is elected. It reports whether no controller runs.
func (e *Election) close() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
	return !e.acquired()
}

// takePart takes part in the election until ctx ends. It calls cancel when the manager must stop.
func (e *Election) takePart(ctx context.Context, cancel context.CancelCauseFunc) error {
	limit := newLimit(func() { e.end("the manager has not stopped in time") })
	defer limit.stop()
	options := append(e.options, client.OnRenewal(func(r client.Renewal) {
		limit.renew(r)
		if r.Ended {
			e.end("the tenure has ended")
		}
	}))
	return client.Run(ctx, e.group, func(ctx context.Context, token uint64) error {
		e.begin(&tenure{ctx: ctx, token: token})
		select {
		case <-ctx.Done():
		case <-e.stopped:
			return nil
		}
		cause := context.Cause(ctx)
		if e.withdraw() {
			return cause // No controller has run, so this process may be elected again.
		}
		if !errors.Is(cause, client.ErrStop) && !errors.Is(cause, context.Canceled) {
			e.end(cause.Error())
		}
		limit.drain()
		cancel(fmt.Errorf("this process is no longer coordinator of group %s: %w", e.group, cause))
		<-e.stopped
		return cause
	}, options...)
}

// begin lets the manager's elector acquire the lock.
func (e *Election) begin(t *tenure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tenure = t
	close(e.began)
	e.began = make(chan struct{})
}

// withdraw ends a tenure for which the manager's elector hasn't acquired the lock. It reports whether that is so.
func (e *Election) withdraw() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.acquired() {
		return false
	}
	e.tenure = nil
	return true
}

// end ends the process if controllers may run: another process may be coordinator now or soon.
func (e *Election) end(reason string) {
	e.mu.Lock()
	acquired := e.acquired()
	e.mu.Unlock()
	select {
	case <-e.stopped:
		return
	default:
	}
	if !acquired {
		return
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		e.log.Error("exiting, because another process may be coordinator", "reason", reason)
	}()
	select {
	case <-logged:
	case <-time.After(logTimeout):
	}
	os.Exit(1)
}
