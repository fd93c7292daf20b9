package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/tour"
)

// Conclave's packages that the demo needs. They are compiled first, because containerd and CoreDNS share some of their dependencies.
var packages = []string{"./cmd/manager", "./cmd/agent", "./cmd/kubectl-conclave", "./examples/lock-service"}

const (
	// showAfter is the duration of a build that is long enough to show something else meanwhile.
	showAfter = 5 * time.Second
	// pause is the time between two failovers of the agents.
	pause = 5 * time.Second
)

// build builds all programs, and calls prepare when those of Conclave are compiled: what it does uses the time in which
// other builds leave a core idle. If that takes long, agents elect on this machine meanwhile.
func (s *demo) build(ctx context.Context, prepare func(context.Context) error) error {
	meanwhile, stop := context.WithCancel(ctx)
	shown := make(chan error, 1)
	go func() {
		select {
		case <-time.After(showAfter):
			shown <- s.showAgents(meanwhile)
		case <-meanwhile.Done():
			shown <- nil
		}
	}()
	preparing, interrupt := context.WithCancel(ctx)
	defer interrupt()
	prepared := make(chan error, 1)
	begin := sync.OnceFunc(func() { go func() { prepared <- prepare(preparing) }() })
	err := s.cluster.build(ctx, s.out, begin)
	if err != nil {
		interrupt()
	}
	begin()
	err = cmp.Or(err, <-prepared)
	stop()
	s.out.show("")
	if failed := <-shown; failed != nil && ctx.Err() == nil {
		// The build is what counts.
		s.printf("the agents stopped: %v", failed)
	}
	return err
}

// niced returns a command that leaves the CPUs to the agents.
func niced(ctx context.Context, arguments ...string) *exec.Cmd {
	return interruptible(exec.CommandContext(ctx, "nice", append([]string{"-n", "10"}, arguments...)...))
}

// interruptible interrupts the command when its context ends, so that it can clean up.
func interruptible(command *exec.Cmd) *exec.Cmd {
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	return command
}

// showAgents takes the coordinator of five agents away again and again, until ctx ends.
func (s *demo) showAgents(ctx context.Context) (err error) {
	t, err := tour.Start(ctx, filepath.Join(s.top, "bin", "conclave-agent"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	s.printf("\nMeanwhile, five agents a to e elect on this machine, with TLS and in Majority mode:\n")
	s.printf("  %-30s %-5s %s", "COORDINATOR", "NEXT", "ALL OTHERS FOLLOW IT AFTER")
	var times []time.Duration
	for i := 0; ; i++ {
		coordinator, err := t.AwaitSettled(ctx)
		if ctx.Err() != nil {
			s.printKills(times)
			return nil
		}
		if err != nil {
			return err
		}
		fault := i % len(tour.Faults)
		next, took, err := t.Failover(ctx, coordinator, tour.Faults[fault])
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return err
		default:
			s.printf("  %-30s %-5s %.1f ms", coordinator+" "+tour.Faults[fault].Name, next, millis(took))
			if fault == 0 {
				times = append(times, took)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (s *demo) printKills(times []time.Duration) {
	if len(times) > 2 {
		slices.Sort(times)
		s.printf("  %d kills, while this machine was compiling: median %.1f ms, maximum %.1f ms",
			len(times), millis(times[len(times)/2]), millis(times[len(times)-1]))
	}
}

// build compiles Conclave and builds the cluster's programs. It shows the progress.
func (c *hackCluster) build(ctx context.Context, out *printer, compiled func()) error {
	build := niced(ctx, c.tool, "build", "--first", strings.Join(packages, ","))
	build.Dir = c.top
	stderr, err := build.StderrPipe()
	if err != nil {
		return err
	}
	if err := build.Start(); err != nil {
		return err
	}
	last := make(chan string)
	go func() {
		line := ""
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			line = lines.Text()
			out.show(line)
			if strings.HasPrefix(line, "building ") { // Conclave's packages come first.
				compiled()
			}
		}
		last <- line
	}()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			out.tick()
		case line := <-last:
			if err := build.Wait(); err != nil {
				return fmt.Errorf("cannot build the cluster's programs: %s", strings.TrimPrefix(line, "cluster: "))
			}
			return nil
		}
	}
}
