package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/agent/alarm"
	"github.com/conclave-dev/conclave/internal/agent/clock"
	"github.com/conclave-dev/conclave/internal/election"
)

const (
	// exitFailure is the status if there is no program to run yet. exitCannotRun and exitNotFound are those of shells for
	// a command that can't run, or doesn't exist.
	exitFailure   = 1
	exitCannotRun = 126
	exitNotFound  = 127
	// orders is the guard's file descriptor for orders. Those above it are connections to the agent.
	orders = 3
	// killInterval is the time after which the wrapper or the guard kills again what is left.
	killInterval = 5 * time.Millisecond
)

type order struct {
	// KillAt is the time of CLOCK_BOOTTIME at which the guard kills the program, and End when the program must have ended.
	KillAt time.Duration `json:"killAt,omitempty"`
	End    time.Duration `json:"end,omitempty"`
	// Signal is for the program.
	Signal syscall.Signal `json:"signal,omitempty"`
}

// Guard runs a program and kills it, with all of its descendants, at the time of the last order, or when the wrapper
// has ended. So nothing of the program is left even if the wrapper was killed or stopped. It returns the exit status of
// the program.
//
// The guard holds the wrapper's connections to the agent open. So the agent doesn't see that the wrapper has ended
// before everything is killed.
func Guard(path string, argv []string, cgroupPath string, foreground bool, log *slog.Logger) (status int, err error) {
	// The program gets PR_SET_PDEATHSIG, which refers to the thread that has started it.
	runtime.LockOSThread()
	ignoreSignals()
	if err := unix.CloseRange(orders, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return exitFailure, fmt.Errorf("cannot keep the program from inheriting connections: %w", err)
	}
	f, err := newFamily()
	if err != nil {
		return exitFailure, err
	}
	g := &guard{family: f, log: log, orders: make(chan order), killAt: never, end: never}
	if cgroupPath != "" {
		g.cgroup = openCgroup(cgroupPath)
	}
	c := clock.New()
	timers, err := alarm.New(c)
	if err != nil {
		return exitFailure, err
	}
	due := make(chan struct{}, 1)
	timer := timers.NewTimer(func() { notify(due) })
	g.wake = func(at time.Duration) { timer.Set(tick(c, at)) }
	go readOrders(os.NewFile(orders, "orders"), g.orders)
	first, ok := <-g.orders
	if !ok {
		return exitFailure, errors.New("the guard needs the orders of conclave-agent exec, which starts it")
	}
	g.obey(first)
	if err := g.start(path, argv, foreground); err != nil {
		return exitCannotRun, err
	}
	return g.run(due), nil
}

// tick returns the tick of a clock at a time of CLOCK_BOOTTIME.
func tick(c *clock.Clock, at time.Duration) election.Tick {
	if at == never {
		return election.Never
	}
	return max(1, election.Tick(at-c.Origin()))
}

// ignoreSignals catches the signals that would end or stop the guard. If it ignored them, the program would, too.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN)
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup, which is for the program
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}

func readOrders(r io.Reader, orders chan<- order) {
	defer close(orders)
	for decoder := json.NewDecoder(r); ; {
		var o order
		if decoder.Decode(&o) != nil {
			return
		}
		orders <- o
	}
}

type guard struct {
	family *family
	cgroup *cgroup
	orders chan order
	log    *slog.Logger
	wake   func(at time.Duration)
	// killAt and end are those of the last order that has them.
	killAt, end time.Duration
}

func (g *guard) start(path string, argv []string, foreground bool) error {
	// The agent's timers may be late, but not those of the program.
	const defaultSlack = 50_000
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, defaultSlack, 0, 0, 0) // Nothing depends on it.
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: foreground,
	}}
	if g.cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(g.cgroup.dir.Fd())
	}
	err := g.family.start(path, argv, attr)
	if err != nil && g.cgroup != nil { // For example, a seccomp filter forbids clone3.
		attr.Sys.UseCgroupFD = false
		err = g.family.start(path, argv, attr)
	}
	if err != nil {
		return fmt.Errorf("cannot run %s: %w", path, err)
	}
	return nil
}

// run returns the status of the program when nothing of it is left.
func (g *guard) run(due <-chan struct{}) int {
	for killing := false; ; {
		if status := g.family.mainStatus(); status >= 0 {
			killing = true
			if g.family.reap() {
				reportLate(g.log, clock.Boottime()-g.end)
				g.cgroup.remove()
				return status
			}
		}
		if killing {
			g.cgroup.kill()
			g.family.kill()
			g.wake(clock.Boottime() + killInterval)
		}
		select {
		case o, ok := <-g.orders:
			if !ok {
				killing, g.orders = true, nil
				continue
			}
			g.obey(o)
		case <-g.family.changed:
		case <-due:
			killing = killing || clock.Boottime() >= g.killAt
		}
	}
}

func (g *guard) obey(o order) {
	if o.KillAt != 0 {
		g.killAt, g.end = o.KillAt, o.End
		g.wake(g.killAt)
	}
	if o.Signal != 0 {
		g.family.signalMain(o.Signal)
	}
}

// reportLate reports that a program has ended after the end of its time. Then only tokens have protected what it writes
// to.
func reportLate(log *slog.Logger, late time.Duration) {
	if late > 0 {
		log.Error("the program has ended too late: the machine was busy or paused", "late", late.String())
	}
}
