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
	"text/tabwriter"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/failover"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// waitMax bounds every step.
const waitMax = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run starts the agents a to e. A restarted agent doesn't take over, so the coordinator changes only if it is taken away.
func run(ctx context.Context, arguments []string, out io.Writer) (err error) {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: %s PATH-OF-CONCLAVE-AGENT", arguments[0])
	}
	folder, err := os.MkdirTemp("", "conclave-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	agents, err := agentcluster.New(ctx, agentcluster.Options{
		Binary: arguments[1], Folder: folder, Agents: 5, TLS: true,
		Group: agentcluster.Group{Preemption: &agentcluster.Preemption{Policy: "Never", StableMillis: new(int)}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err = agents.Start(agents.Names()...); err == nil {
		err = (&show{agents: agents, out: out}).run(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, agents.Logs(10))
	}
	return nil
}

// show is the demonstration.
type show struct {
	agents *agentcluster.Cluster
	out    io.Writer
}

func (s *show) run(ctx context.Context) error {
	fmt.Fprintf(s.out, "\n# Five agents with TLS: Majority, StatusTable, default timing\n")
	coordinator := "e"
	if err := s.showSettled(ctx, coordinator); err != nil {
		return err
	}
	successors := []string{"d", "e", "d"} // The highest priority of the others.
	for i, f := range faults {
		fmt.Fprintf(s.out, "\n# %s %s\n", coordinator, f.name)
		next, took, err := s.failover(ctx, coordinator, f)
		if err == nil && next != successors[i] {
			err = fmt.Errorf("%s leads, want %s", next, successors[i])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Fprintf(s.out, "%s leads: all other agents knew it after %.1f ms\n", next, float64(took.Microseconds())/1000)
		coordinator = next
		if err := s.showSettled(ctx, coordinator); err != nil {
			return err
		}
	}
	return nil
}

// fault takes the coordinator away. The function inject returns the time just before that.
type fault struct {
	name    string
	inject  func(ctx context.Context, agents *agentcluster.Cluster, coordinator string) (time.Time, error)
	recover func(agents *agentcluster.Cluster, coordinator string) error
}

// faults are a crash, a pause, and a hand-over.
var faults = []fault{
	{
		"kill -9",
		func(_ context.Context, agents *agentcluster.Cluster, coordinator string) (time.Time, error) {
			return agents.Agent(coordinator).Kill()
		},
		(*agentcluster.Cluster).Restart,
	},
	{
		"paused: its lease expires",
		func(_ context.Context, agents *agentcluster.Cluster, coordinator string) (time.Time, error) {
			return agents.Agent(coordinator).Stop()
		},
		func(agents *agentcluster.Cluster, coordinator string) error {
			return agents.Agent(coordinator).Continue()
		},
	},
	{
		"steps down",
		func(ctx context.Context, agents *agentcluster.Cluster, coordinator string) (time.Time, error) {
			at := time.Now()
			_, err := agents.StepDown(ctx, coordinator, "")
			return at, err
		},
		func(*agentcluster.Cluster, string) error { return nil },
	},
}

// failover takes the coordinator away and returns the next one, and the time until all other agents followed it. Then it ends the fault.
func (s *show) failover(ctx context.Context, coordinator string, f fault) (next string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	next, took, err = failover.Measure(ctx, s.agents, coordinator, func() (time.Time, error) { return f.inject(ctx, s.agents, coordinator) })
	return next, took, errors.Join(err, f.recover(s.agents, coordinator))
}

// showSettled waits until all agents are connected and follow this coordinator, and prints the process status table of one of them.
func (s *show) showSettled(ctx context.Context, coordinator string) error {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	if err := s.agents.AwaitConnected(ctx); err != nil {
		return err
	}
	got, err := s.agents.AwaitCoordinator(ctx, s.agents.Running()...)
	if err == nil && got != coordinator {
		err = fmt.Errorf("%s leads, want %s", got, coordinator)
	}
	if err != nil {
		return err
	}
	status, err := s.agents.Status(ctx, "a")
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "PROCESS\tPRIORITY\tSTATUS\tTERM\n")
	for _, p := range status.Processes {
		term := ""
		if p.Name == status.Coordinator {
			term = fmt.Sprint(status.Term)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", p.Name, p.Priority, p.Status, term)
	}
	return table.Flush()
}
