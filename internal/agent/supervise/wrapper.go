// Package supervise runs an unchanged program while its process is coordinator, for the command conclave-agent exec.
//
// There are two processes: the wrapper, which holds a session with the agent, and for each tenure a guard, which is the
// parent of the program. Both are subreapers, so all descendants of the program are descendants of the guard, and of
// the wrapper if the guard has ended:
//
//	wrapper (session, renewals)  ->  guard (deadline)  ->  program  ->  ...
//
// The wrapper tells the guard each time how long the tenure lasts. If the wrapper is killed or stopped, the guard kills
// the program and all of its descendants; if the guard is, the wrapper does. A tenure is released when the wrapper has
// no child left. The guard holds the connections of the wrapper open, so the agent doesn't see the end of a killed
// wrapper before.
package supervise

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/agent/alarm"
	"github.com/conclave-dev/conclave/internal/agent/clock"
)

// Options say what to run.
type Options struct {
	Group   string
	Command []string
	// Prepare, if it isn't empty, is a command of a shell that runs once this process is elected, before it leads.
	Prepare string
	// AlsoLease, if it isn't empty, is a Lease that the program holds, too: NAME or NAME/NAMESPACE. LeaseDuration is that
	// of the other replicas, and ServiceAccount has the token for the API server.
	AlsoLease, ServiceAccount string
	LeaseDuration             time.Duration
	// Restart runs the program again when it has ended by itself.
	Restart bool
	Log     *slog.Logger
}

// wrapper is the process that holds the session.
type wrapper struct {
	Options

	path        string
	lease       *heldLease // nil without AlsoLease
	family      *family
	connections connections
	foreground  bool
	// wake makes due receive a value at a time.
	wake func(at time.Duration)
	due  chan struct{}
	// signals are those for the program.
	signals chan syscall.Signal
	renewed chan struct{}

	mu     sync.Mutex
	latest client.Renewal
	// leads: there is a program, whose end is that of all that the wrapper has started.
	leads bool

	// The fields below belong to the function that the client calls, or to Run after the client has returned.

	// ended is why the last program has ended, 0 if none has run, and status its status.
	ended   ending
	status  int
	refused error
}

// forwarded are the signals that the wrapper passes to the program. The first three also end the wrapper.
var forwarded = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

func endsWrapper(s os.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT
}

// Run runs the program in each tenure of this process, until the program ends by itself or a signal arrives. It returns
// the exit status: that of the program, 128 plus a signal's number, or 0 if a signal has ended Run while no program was
// running.
func Run(ctx context.Context, o Options) (status int, err error) {
	w := &wrapper{Options: o, due: make(chan struct{}, 1), signals: make(chan syscall.Signal, 16), renewed: make(
		chan struct{}, 1)}
	if w.path, status, err = find(o.Command[0]); err != nil {
		return status, err
	}
	if w.AlsoLease != "" {
		if w.lease, err = newLease(o); err != nil {
			return exitFailure, err
		}
	}
	if w.Prepare != "" {
		if _, status, err = find(shell); err != nil {
			return status, err
		}
	}
	if w.family, err = newFamily(); err != nil {
		return exitFailure, err
	}
	c := clock.New()
	timers, err := alarm.New(c)
	if err != nil {
		return exitFailure, err
	}
	defer timers.Close()
	timer := timers.NewTimer(func() { notify(w.due) })
	w.wake = func(at time.Duration) { timer.Set(tick(c, at)) }
	w.foreground = isForeground()
	return w.run(ctx)
}

// find returns the path of a command, so that a process that can't run it doesn't become coordinator.
func find(command string) (path string, status int, err error) {
	path, err = exec.LookPath(command)
	switch {
	case err == nil:
		return path, 0, nil
	case errors.Is(err, fs.ErrPermission):
		return "", exitCannotRun, err
	}
	return "", exitNotFound, err
}

func (w *wrapper) run(ctx context.Context) (status int, err error) {
	received := make(chan os.Signal, 16)
	signal.Notify(received, forwarded...)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(received, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // The program must not inherit that it is ignored.
	var pause backoff
	for {
		began := time.Now()
		terminated, failed := w.takePart(ctx, received)
		switch {
		case w.refused != nil:
			return exitFailure, w.refused
		case terminated:
			return w.status, nil
		case w.ended == 0 && failed != nil:
			return exitFailure, failed
		case w.ended == byItself && !w.Restart:
			return w.status, nil
		}
		delay := minBackoff
		if w.ended == byItself {
			delay = pause.next(time.Since(began))
		}
		w.Log.Info("waiting before the next session", "delay", delay.String())
		select {
		case <-time.After(delay):
		case s := <-received:
			if endsWrapper(s) {
				return 0, nil
			}
		}
	}
}

// takePart takes part in elections until a program has ended by itself. It reports whether a signal has ended it.
func (w *wrapper) takePart(ctx context.Context, received <-chan os.Signal) (terminated bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	w.ended, w.status = 0, 0
	done := make(chan error, 1)
	go func() {
		done <- client.Run(ctx, w.Group, func(ctx context.Context, token uint64) error {
			w.ended = revoked
			work := func(ctx context.Context) (over bool) {
				w.lead(ctx, token)
				return w.refused != nil || w.ended != revoked
			}
			if w.lease == nil && work(ctx) || w.lease != nil && w.lease.hold(ctx, work) {
				end()
			}
			return nil
		}, client.LogTo(w.Log), client.DialWith(w.connections.dial), client.OnRenewal(w.onRenewal),
			client.Prepare(w.prepare))
	}()
	defer w.family.killHelper()
	for {
		select {
		case err := <-done:
			return terminated, err
		case s := <-received:
			terminated = terminated || endsWrapper(s)
			select {
			case w.signals <- s.(syscall.Signal): //nolint:errcheck // All signals have this type.
			default: // The program doesn't run, or handles none.
			}
			if terminated {
				end()
			}
		}
	}
}

// prepare runs the command that prepares the program, which neither waits for it nor ends it. It is killed when this
// process isn't elected any more, or with the program.
func (w *wrapper) prepare(ctx context.Context, _ time.Duration) {
	w.mu.Lock()
	leads := w.leads
	w.mu.Unlock()
	if w.Prepare == "" || leads {
		return
	}
	runtime.LockOSThread() // PR_SET_PDEATHSIG refers to this thread.
	defer runtime.UnlockOSThread()
	if err := w.family.startHelper(w.Prepare, append(os.Environ(), "CONCLAVE_GROUP="+w.Group)); err != nil {
		w.Log.Warn("cannot run the command that prepares the program", "error", err)
		return
	}
	<-ctx.Done()
	w.family.killHelper()
}

func (w *wrapper) setLeads(leads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leads = leads
}

func (w *wrapper) onRenewal(r client.Renewal) {
	w.mu.Lock()
	w.latest = r
	w.mu.Unlock()
	notify(w.renewed)
}

func (w *wrapper) renewal() client.Renewal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// backoff is the delay before a program that has ended is started again. Meanwhile, another process may be elected.
type backoff struct{ delay time.Duration }

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// longLife is how long a session must last so that the backoff starts again.
	longLife = time.Minute
)

func (b *backoff) next(lived time.Duration) time.Duration {
	if lived >= longLife {
		b.delay = 0
	}
	b.delay = min(max(2*b.delay, minBackoff), maxBackoff)
	return b.delay
}

// isForeground reports whether stdin is a terminal of which this process is in the foreground. If so, the program will
// be, too. Whoever takes a terminal back must ignore SIGTTOU.
func isForeground() bool {
	group, err := unix.IoctlGetInt(unix.Stdin, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return false
	}
	signal.Ignore(syscall.SIGTTOU)
	return true
}
