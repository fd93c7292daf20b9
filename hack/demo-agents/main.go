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
		// A restarted agent doesn't take over, so the coordinator changes only by the demo's faults.
		Group: agentcluster.Group{Preemption: &agentcluster.Preemption{Policy: "Never", StableSeconds: new(int)}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err := agents.Start(agents.Names()...); err != nil {
		return err
	}
	s := &tour{agents: agents, out: out}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, agents.Logs(10))
	}
	return nil
}

// tour is the demonstration with a running cluster of agents.
type tour struct {
	agents *agentcluster.Cluster
	out    io.Writer
}

func (s *tour) run(ctx context.Context) error {
	fmt.Fprintf(s.out, "\n# Five agents with TLS: Majority, StatusTable, default timing\n")
	if err := s.awaitSettled(ctx, "e"); err != nil {
		return err
	}
	if err := s.table(ctx, "a"); err != nil {
		return err
	}
	e, d := s.agents.Agent("e"), s.agents.Agent("d")
	for _, step := range []struct {
		title, successor string
		inject           func(context.Context) (time.Time, error)
		recover          func() error
	}{
		{
			"Kill the coordinator e with SIGKILL", "d", func(context.Context) (time.Time, error) { return e.Kill() },
			func() error { return s.agents.Restart("e") },
		},
		{
			"Pause the coordinator d with SIGSTOP: connections stay open, its lease must expire", "e",
			func(context.Context) (time.Time, error) { return d.Stop() }, d.Continue,
		},
		{
			"Ask the coordinator e to step down in favor of b", "b",
			func(ctx context.Context) (time.Time, error) {
				at := time.Now()
				_, err := s.agents.StepDown(ctx, "e", "b")
				return at, err
			}, func() error { return nil },
		},
	} {
		fmt.Fprintf(s.out, "\n# %s\n", step.title)
		took, err := s.failover(ctx, step.successor, step.inject)
		if err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
		fmt.Fprintf(s.out, "%s leads: all other agents knew it after %.1f ms\n", step.successor, float64(took.Microseconds())/1000)
		if err := s.table(ctx, "a"); err != nil {
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

// awaitSettled waits until all agents are connected and follow the coordinator.
func (s *tour) awaitSettled(ctx context.Context, coordinator string) error {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	if err := s.agents.AwaitConnected(ctx); err != nil {
		return err
	}
	got, err := s.agents.AwaitCoordinator(ctx, s.agents.Running()...)
	if err == nil && got != coordinator {
		err = fmt.Errorf("%s leads, want %s", got, coordinator)
	}
	return err
}

// failover takes the coordinator away and returns the time until all other agents knew
// the next one.
func (s *tour) failover(ctx context.Context, successor string, inject func(context.Context) (time.Time, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	before, err := s.agents.Leader(ctx, "a")
	if err != nil {
		return 0, err
	}
	observations := make(chan agentcluster.Observation, 100)
	watching := 0
	for _, name := range s.agents.Running() {
		if name == before.Coordinator {
			continue
		}
		watching++
		go func() {
			// If a stream breaks, awaitAnnounced times out.
			_ = s.agents.Watch(ctx, name, func(seen agentcluster.Observation) { observations <- seen })
		}()
	}
	// Each stream begins with the present state, so now all streams are open.
	if _, err := awaitAnnounced(ctx, observations, before.Coordinator, watching); err != nil {
		return 0, err
	}
	injected, err := inject(ctx)
	if err != nil {
		return 0, err
	}
	last, err := awaitAnnounced(ctx, observations, successor, watching)
	return last.Sub(injected), err
}

// awaitAnnounced waits until this number of agents have announced the coordinator.
func awaitAnnounced(ctx context.Context, observations <-chan agentcluster.Observation, coordinator string, agents int) (time.Time, error) {
	known := map[string]bool{}
	for {
		select {
		case seen := <-observations:
			if known[seen.Leader.Self] = seen.Leader.Coordinator == coordinator; known[seen.Leader.Self] && count(known) == agents {
				return seen.At, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d agents follow %s: %w", count(known), agents, coordinator, ctx.Err())
		}
	}
}

func count(known map[string]bool) (n int) {
	for _, is := range known {
		if is {
			n++
		}
	}
	return n
}

// table prints the process status table of one agent.
func (s *tour) table(ctx context.Context, of string) error {
	status, err := s.agents.Status(ctx, of)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "PROCESS\tPRIORITY\tSTATUS\tTERM\n")
	for _, p := range status.Processes {
		term := ""
		if p.Name == status.Coordinator {
			term = fmt.Sprint(status.Term)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", p.Name, p.Priority, p.Status, term)
	}
	return w.Flush()
}
