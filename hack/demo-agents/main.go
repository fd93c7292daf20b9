// Command demo-agents runs five real agents on this machine, takes the
// coordinator away three times, each time in another way, and shows who leads
// then and how long that took. It fails if the wrong one follows.
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

// patience is how long anything may take.
const patience = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := demonstrate(ctx, os.Args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func demonstrate(ctx context.Context, arguments []string, out io.Writer) (err error) {
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
		// Who comes back doesn't take over, so that each time one follows the other.
		Group: agentcluster.Group{Preemption: &agentcluster.Preemption{Policy: "Never", StableSeconds: new(int)}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err := agents.Start(agents.Names()...); err != nil {
		return err
	}
	s := &stage{agents: agents, out: out}
	if err := s.play(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, agents.Logs(10))
	}
	return nil
}

// stage is where the agents are shown.
type stage struct {
	agents *agentcluster.Cluster
	out    io.Writer
}

func (s *stage) play(ctx context.Context) error {
	fmt.Fprintf(s.out, "\n# five agents with TLS: Majority, StatusTable, the default timing\n")
	if err := s.settle(ctx, "e"); err != nil {
		return err
	}
	if err := s.table(ctx, "a"); err != nil {
		return err
	}
	e, d := s.agents.Agent("e"), s.agents.Agent("d")
	for _, act := range []struct {
		title, heir string
		strike      func(context.Context) (time.Time, error)
		mend        func() error
	}{
		{
			"kill -9 of the coordinator, e", "d", func(context.Context) (time.Time, error) { return e.Kill() },
			func() error { return s.agents.Restart("e") },
		},
		{
			"SIGSTOP of the coordinator, d: no connection closes, its lease has to run out", "e",
			func(context.Context) (time.Time, error) { return d.Stop() }, d.Continue,
		},
		{
			"the coordinator, e, is asked to step down in favour of b", "b",
			func(ctx context.Context) (time.Time, error) {
				at := time.Now()
				_, err := s.agents.StepDown(ctx, "e", "b")
				return at, err
			}, func() error { return nil },
		},
	} {
		fmt.Fprintf(s.out, "\n# %s\n", act.title)
		took, err := s.succession(ctx, act.heir, act.strike)
		if err != nil {
			return fmt.Errorf("%s: %w", act.title, err)
		}
		fmt.Fprintf(s.out, "%s leads, and the last of the others knew it after %.1f ms\n", act.heir, float64(took.Microseconds())/1000)
		if err := s.table(ctx, "a"); err != nil {
			return err
		}
		if err := act.mend(); err != nil {
			return err
		}
		if err := s.settle(ctx, act.heir); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until everybody is connected, grants, and follows the coordinator.
func (s *stage) settle(ctx context.Context, coordinator string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.agents.AwaitConnected(ctx); err != nil {
		return err
	}
	who, err := s.agents.AwaitCoordinator(ctx, s.agents.Running()...)
	if err == nil && who != coordinator {
		err = fmt.Errorf("%s leads instead of %s", who, coordinator)
	}
	return err
}

// succession takes the coordinator away, and returns how long it took until all
// that go on knew the next one.
func (s *stage) succession(ctx context.Context, heir string, strike func(context.Context) (time.Time, error)) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before, err := s.agents.Leader(ctx, "a")
	if err != nil {
		return 0, err
	}
	news := make(chan agentcluster.Observation, 100)
	watching := 0
	for _, name := range s.agents.Running() {
		if name == before.Coordinator {
			continue
		}
		watching++
		go func() {
			// A stream that breaks shows in what doesn't arrive.
			_ = s.agents.Watch(ctx, name, func(seen agentcluster.Observation) { news <- seen })
		}()
	}
	// Their present states: all of them listen.
	if _, err := announced(ctx, news, before.Coordinator, watching); err != nil {
		return 0, err
	}
	struck, err := strike(ctx)
	if err != nil {
		return 0, err
	}
	last, err := announced(ctx, news, heir, watching)
	return last.Sub(struck), err
}

// announced waits until so many agents have named the coordinator.
func announced(ctx context.Context, news <-chan agentcluster.Observation, coordinator string, agents int) (time.Time, error) {
	known := map[string]bool{}
	for {
		select {
		case seen := <-news:
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

// table shows the process status table, as one agent knows it.
func (s *stage) table(ctx context.Context, of string) error {
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
