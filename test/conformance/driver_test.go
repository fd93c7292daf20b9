package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/client"
)

// A driver uses the client of one language as a test commands. It reads one command per line, and writes lines that
// begin with its name. All drivers of a scenario and a language write to one pipe, so that their lines are in the order
// of the writes.
//
//	run     take part: "lead TOKEN PROCESS" in the function, "told CAUSE", "done" before the function returns, and
//	        "returned ERROR"
//	        Before: "elected WITHIN" if a former lease has to end, and for libraries "unelected" when that is over
//	hold    the function stays after it was told
//	return  the function returns, and fails after fail
//	act     "act TOKEN MILLIS" if the function may act, with the time that is left, otherwise "act idle"
//	quit    end run and watch
//	watch   "watch COORDINATOR TERM" for each change, "watch gone", and an error
//	leader  "leader COORDINATOR LEADING TOKEN", or "leader error: ..."
//	promise "promise LEADING INVALID", for the client of Go: whether it leads, and whether the promise has no end or
//	        is too long
//	health  "health N", with the number of groups that make no progress, or "health error: ..."
const (
	driverVariable = "CONFORMANCE_DRIVER"
	// nameVariable is for the program of exec, whose arguments are those of the test.
	nameVariable = "CONFORMANCE_NAME"
)

type driver struct {
	name, group string
	ctx         context.Context
	quit        context.CancelFunc
	hold        atomic.Bool
	orders      chan string

	mu      sync.Mutex
	tenure  context.Context
	token   uint64
	renewal client.Renewal
}

// runDriver is the driver of the Go client, or the program of exec.
func runDriver(kind string) {
	d := &driver{orders: make(chan string, 10)}
	d.ctx, d.quit = context.WithCancel(context.Background())
	if kind == languageExec {
		d.name = os.Getenv(nameVariable)
		d.runProgram()
		return
	}
	d.name, d.group = os.Args[1], os.Args[2]
	d.obey()
}

func (d *driver) say(words ...any) {
	// The test may have ended.
	_, _ = os.Stdout.WriteString(d.name + " " + strings.TrimSuffix(fmt.Sprintln(words...), "\n") + "\n")
}

func (d *driver) obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch command := lines.Text(); command {
		case "run":
			go d.run()
		case "hold":
			d.hold.Store(true)
		case "act":
			d.act()
		case "quit":
			d.quit()
		case "watch":
			go d.watch()
		case "leader":
			if state, err := client.Leader(d.ctx, d.group); err != nil {
				d.say("leader error:", err)
			} else {
				d.say("leader", state.Coordinator, state.Leading, state.Token)
			}
		case "promise":
			const promise = 100 * time.Millisecond
			state, err := client.LeaderWithPromise(d.ctx, d.group, promise)
			d.say("promise", err == nil && state.Leading, state.Until.IsZero() || time.Until(state.Until) > promise)
		default:
			d.orders <- command
		}
	}
	os.Exit(0)
}

func (d *driver) run() {
	err := client.Run(d.ctx, d.group, func(ctx context.Context, token uint64) error {
		d.mu.Lock()
		d.tenure, d.token = ctx, token
		d.mu.Unlock()
		d.say("lead", token, os.Getpid())
		return d.lead(ctx)
	}, client.Prepare(func(ctx context.Context, within time.Duration) {
		d.say("elected", within.Milliseconds())
		<-ctx.Done()
		d.say("unelected")
	}), client.OnRenewal(func(r client.Renewal) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !r.Ended {
			d.renewal = r
		}
	}))
	if err == nil || errors.Is(err, context.Canceled) {
		d.say("returned nil")
		return
	}
	d.say("returned", err)
}

func (d *driver) lead(ctx context.Context) error {
	told := ctx.Done()
	for {
		select {
		case <-told:
			told = nil
			d.say("told", causeOf(ctx))
			if d.hold.Load() {
				continue
			}
			d.say("done")
			return nil
		case order := <-d.orders:
			d.say("done")
			if order == "fail" {
				return errors.New("boom")
			}
			return nil
		}
	}
}

func causeOf(ctx context.Context) string {
	for name, cause := range map[string]error{
		"stop": client.ErrStop, "lost": client.ErrLost, "not-renewed": client.ErrNotRenewed,
		"agent-gone": client.ErrAgentGone,
	} {
		if errors.Is(context.Cause(ctx), cause) {
			return name
		}
	}
	return "ended"
}

func (d *driver) act() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tenure == nil || d.tenure.Err() != nil {
		d.say("act idle")
		return
	}
	remaining := time.Duration(1e6) * time.Millisecond
	if d.renewal.Until != 0 {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // The test checks the result.
		remaining = d.renewal.Until - time.Duration(now.Nano())
	}
	d.say("act", d.token, remaining.Milliseconds())
}

func (d *driver) watch() {
	for state, err := range client.Watch(d.ctx, d.group) {
		switch {
		case errors.Is(err, client.ErrAgentGone):
			d.say("watch gone")
		case err != nil:
			d.say("watch", err)
			return
		case state.Coordinator == "":
			d.say("watch -", state.Term)
		default:
			d.say("watch", state.Coordinator, state.Term)
		}
	}
	d.say("watch end")
}

// runProgram is a program that conclave-agent exec runs. It leads as long as it runs, and is told by SIGTERM.
func (d *driver) runProgram() {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	d.say("lead", os.Getenv("CONCLAVE_TOKEN"), os.Getpid())
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch command := lines.Text(); command {
			case "hold":
				d.hold.Store(true)
			case "act":
				d.say("act", os.Getenv("CONCLAVE_TOKEN"), 1)
			default:
				d.orders <- command
			}
		}
	}()
	for {
		select {
		case <-term:
			d.say("told stop")
			if !d.hold.Load() {
				d.say("done")
				os.Exit(0)
			}
		case order := <-d.orders:
			d.say("done")
			if order == "fail" {
				os.Exit(7)
			}
			os.Exit(0)
		}
	}
}
