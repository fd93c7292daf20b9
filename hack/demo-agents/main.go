// Command demo-agents runs five real agents on this machine, takes the coordinator away
// three times in different ways, and prints the next coordinator and the failover time.
// It fails if the wrong agent becomes coordinator.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/tour"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, out io.Writer) (err error) {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: %s PATH-OF-CONCLAVE-AGENT", arguments[0])
	}
	agents, err := tour.Start(ctx, arguments[1])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close()) }()
	s := &show{Tour: agents, out: out}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, agents.Agents.Logs(10))
	}
	return nil
}

// show is the demonstration.
type show struct {
	*tour.Tour

	out io.Writer
}

func (s *show) run(ctx context.Context) error {
	fmt.Fprintf(s.out, "\n# Five agents with TLS: Majority, StatusTable, default timing\n")
	if err := s.awaitSettled(ctx, "e"); err != nil {
		return err
	}
	if err := s.Table(ctx, "a", s.out); err != nil {
		return err
	}
	e, d := s.Agents.Agent("e"), s.Agents.Agent("d")
	for _, step := range []struct {
		title, successor string
		inject           func(context.Context) (time.Time, error)
		recover          func() error
	}{
		{
			"Kill the coordinator e with SIGKILL", "d", func(context.Context) (time.Time, error) { return e.Kill() },
			func() error { return s.Agents.Restart("e") },
		},
		{
			"Pause the coordinator d with SIGSTOP: connections stay open, its lease must expire", "e",
			func(context.Context) (time.Time, error) { return d.Stop() }, d.Continue,
		},
		{
			"Ask the coordinator e to step down in favor of b", "b",
			func(ctx context.Context) (time.Time, error) {
				at := time.Now()
				_, err := s.Agents.StepDown(ctx, "e", "b")
				return at, err
			}, func() error { return nil },
		},
	} {
		fmt.Fprintf(s.out, "\n# %s\n", step.title)
		next, took, err := s.Failover(ctx, step.inject)
		if err == nil && next != step.successor {
			err = fmt.Errorf("%s leads, want %s", next, step.successor)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
		fmt.Fprintf(s.out, "%s leads: all other agents knew it after %.1f ms\n", step.successor, float64(took.Microseconds())/1000)
		if err := s.Table(ctx, "a", s.out); err != nil {
			return err
		}
		if err := step.recover(); err != nil {
			return err
		}
		if err := s.awaitSettled(ctx, step.successor); err != nil {
			return err
		}
	}
	return nil
}

// awaitSettled waits until all agents follow this coordinator.
func (s *show) awaitSettled(ctx context.Context, coordinator string) error {
	got, err := s.AwaitSettled(ctx)
	if err == nil && got != coordinator {
		err = fmt.Errorf("%s leads, want %s", got, coordinator)
	}
	return err
}
