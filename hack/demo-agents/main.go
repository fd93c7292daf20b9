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
	coordinator := "e"
	if err := s.awaitSettled(ctx, coordinator); err != nil {
		return err
	}
	if err := s.Table(ctx, "a", s.out); err != nil {
		return err
	}
	successors := []string{"d", "e", "d"} // The highest priority of the others.
	for i, fault := range tour.Faults {
		fmt.Fprintf(s.out, "\n# %s %s\n", coordinator, fault.Name)
		next, took, err := s.Failover(ctx, coordinator, fault)
		if err == nil && next != successors[i] {
			err = fmt.Errorf("%s leads, want %s", next, successors[i])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", fault.Name, err)
		}
		fmt.Fprintf(s.out, "%s leads: all other agents knew it after %.1f ms\n", next, float64(took.Microseconds())/1000)
		coordinator = next
		if err := s.awaitSettled(ctx, coordinator); err != nil {
			return err
		}
		if err := s.Table(ctx, "a", s.out); err != nil {
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
