// Package lease lets a program that Conclave elects hold a Lease, too, as long as there are replicas that only know the
// Lease. So a rolling update replaces these, in both directions, and no two replicas lead at the same time.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/conclave-dev/conclave/controllerruntime/internal/exit"
)

var (
	// ErrNotRenewed means that the Lease wasn't renewed within the renew deadline.
	ErrNotRenewed = errors.New("the Lease was not renewed in time")
	// ErrUnavailable means that the API server refused to say who has the Lease, or didn't, for the duration of a Lease.
	ErrUnavailable = errors.New("the API server doesn't say who holds the Lease")
)

// AlsoHold returns a function for client.Run. It calls lead while this process holds the Lease of config, too: it
// acquires the Lease before, renews it, and releases it once lead has returned. The durations are those of the other
// replicas; the config's callbacks and ReleaseOnCancel have no effect. The identity of the lock must be that of this
// process alone: if a replica has another's identity, both take the Lease for their own.
//
// Another replica may acquire the Lease a LeaseDuration after the last renewal was sent. If no renewal succeeds, as
// while the API server is away, the context of lead ends after the RenewDeadline, with the cause [ErrNotRenewed]. If
// lead doesn't return, the process exits with status 1 an eighth of the LeaseDuration before another replica may lead.
// Otherwise, lead is called again once the process has the Lease again, with the same token.
//
// If the API server doesn't say who has the Lease, the function returns [ErrUnavailable] after a LeaseDuration, so that
// another process may become coordinator. Call client.Run again then.
func AlsoHold(
	config leaderelection.LeaderElectionConfig, lead func(context.Context, uint64) error,
) func(context.Context, uint64) error {
	return func(ctx context.Context, token uint64) error {
		for {
			err := hold(ctx, config, func(ctx context.Context) error { return lead(ctx, token) })
			if !errors.Is(err, errAgain) || ctx.Err() != nil {
				return err
			}
		}
	}
}

// errAgain means that the Lease wasn't renewed, and lead doesn't run.
var errAgain = errors.New("the Lease must be acquired again")

// hold calls work while this process holds the Lease.
func hold(ctx context.Context, config leaderelection.LeaderElectionConfig, work func(context.Context) error) error {
	inLease, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	l := newLock(ctx, config, lose)
	defer l.end()
	acquired := make(chan struct{})
	config.Lock, config.ReleaseOnCancel, config.Name = l, true, cmp.Or(config.Name, config.Lock.Describe())
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { close(acquired) },
		OnStoppedLeading: func() {},
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return err
	}
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(electing)
	}()
	defer func() {
		l.end()
		stop()
		<-ended // The Lease is released, unless the API server is away.
	}()
	select {
	case <-acquired:
	case <-l.unavailable.C:
		return fmt.Errorf("%w %s", ErrUnavailable, l.Describe())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !l.begin() {
		return errAgain
	}
	if err := work(inLease); !errors.Is(context.Cause(inLease), ErrNotRenewed) {
		return err
	}
	return errAgain
}

// lock is the Lease as client-go's elector sees it. The elector counts from the response to a renewal, and releases the
// Lease when it can't renew it. The lock counts from the request, and the Lease isn't released while work runs.
type lock struct {
	resourcelock.Interface

	// duration is how long a renewal keeps others from acquiring the Lease, and renewDeadline how long work may go on.
	duration, renewDeadline time.Duration
	// unavailable fires if the API server doesn't say who has the Lease.
	unavailable *time.Timer
	// notRenewed fires when work must stop, and over when it must have stopped.
	notRenewed, over *time.Timer

	mu sync.Mutex
	// holder is that of the Lease when it was last read.
	holder string
	// renewed is when the last renewal was sent that succeeded.
	renewed time.Time
	working bool
}

func newLock(ctx context.Context, config leaderelection.LeaderElectionConfig, lose context.CancelCauseFunc) *lock {
	l := &lock{
		Interface: config.Lock, renewDeadline: config.RenewDeadline, unavailable: time.NewTimer(config.LeaseDuration),
		duration: config.LeaseDuration.Truncate(time.Second), // as others read it
	}
	log := slog.New(logr.ToSlogHandler(klog.FromContext(ctx)))
	l.notRenewed = time.AfterFunc(time.Hour, func() {
		if l.workedFor(l.renewDeadline) {
			lose(ErrNotRenewed)
		}
	})
	l.over = time.AfterFunc(time.Hour, func() {
		if l.workedFor(l.duration - l.duration/8) {
			exit.Now(log, "another replica may acquire the Lease "+l.Describe())
		}
	})
	return l
}

// workedFor reports whether work runs, and the last renewal was sent at least that long ago.
func (l *lock) workedFor(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.working && time.Since(l.renewed) >= d
}

// begin notes that work begins. It reports whether it may: the process may have been paused.
func (l *lock) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working = time.Since(l.renewed) < l.renewDeadline
	l.setTimers()
	return l.working
}

// end notes that no work runs any more.
func (l *lock) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working = false
	for _, timer := range []*time.Timer{l.unavailable, l.notRenewed, l.over} {
		timer.Stop()
	}
}

func (l *lock) setTimers() {
	if l.working {
		l.notRenewed.Reset(time.Until(l.renewed.Add(l.renewDeadline)))
		l.over.Reset(time.Until(l.renewed.Add(l.duration - l.duration/8)))
	}
}

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = ""
	if err == nil {
		l.holder = record.HolderIdentity
	}
	if err == nil || apierrors.IsNotFound(err) {
		l.unavailable.Reset(l.duration)
	}
	return record, raw, err
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Create)
}

// Update renews the Lease, or releases it if this process has it and no work runs.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != "" {
		return l.renew(ctx, record, l.Interface.Update)
	}
	l.mu.Lock()
	refused := l.working || l.holder != l.Identity()
	l.mu.Unlock()
	if refused {
		return errors.New("another process has the Lease, or this one still works")
	}
	return l.Interface.Update(ctx, record) // It fails if the Lease was changed since it was read.
}

func (l *lock) renew(
	ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	sent := time.Now()
	if err := write(ctx, record); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = sent
	l.setTimers()
	return nil
}
