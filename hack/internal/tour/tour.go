// Package tour takes the coordinator of a group of real agents away and measures how long the others need to follow the next
// one.
package tour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// waitMax bounds every step.
const waitMax = 30 * time.Second

// Tour is a group of five agents a to e with TLS, on this machine.
type Tour struct {
	Agents *agentcluster.Cluster
	folder string
}

// Start starts the agents. A restarted agent doesn't take over, so the coordinator changes only if it is taken away.
func Start(ctx context.Context, binary string) (*Tour, error) {
	folder, err := os.MkdirTemp("", "conclave-demo-")
	if err != nil {
		return nil, err
	}
	agents, err := agentcluster.New(ctx, agentcluster.Options{
		Binary: binary, Folder: folder, Agents: 5, TLS: true,
		Group: agentcluster.Group{Preemption: &agentcluster.Preemption{Policy: "Never", StableSeconds: new(int)}},
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	t := &Tour{Agents: agents, folder: folder}
	if err := agents.Start(agents.Names()...); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close stops the agents and removes their files.
func (t *Tour) Close() error { return errors.Join(t.Agents.Close(), os.RemoveAll(t.folder)) }

// AwaitSettled waits until all agents are connected and follow the same coordinator, which it returns.
func (t *Tour) AwaitSettled(ctx context.Context) (coordinator string, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	if err := t.Agents.AwaitConnected(ctx); err != nil {
		return "", err
	}
	return t.Agents.AwaitCoordinator(ctx, t.Agents.Running()...)
}

// Failover takes the coordinator away. It returns the next one, and the time until all other agents followed it.
func (t *Tour) Failover(ctx context.Context, inject func(context.Context) (time.Time, error)) (next string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	before, err := t.Agents.Leader(ctx, "a")
	if err != nil {
		return "", 0, err
	}
	observations := make(chan agentcluster.Observation, 100)
	watching := 0
	for _, name := range t.Agents.Running() {
		if name == before.Coordinator {
			continue
		}
		watching++
		go func() {
			// If a stream breaks, awaitAnnounced times out.
			_ = t.Agents.Watch(ctx, name, func(seen agentcluster.Observation) { observations <- seen })
		}()
	}
	// Each stream begins with the present state, so now all streams are open.
	isBefore := func(coordinator string) bool { return coordinator == before.Coordinator }
	if _, _, err := awaitAnnounced(ctx, observations, isBefore, watching); err != nil {
		return "", 0, err
	}
	injected, err := inject(ctx)
	if err != nil {
		return "", 0, err
	}
	isNext := func(coordinator string) bool { return coordinator != "" && coordinator != before.Coordinator }
	next, last, err := awaitAnnounced(ctx, observations, isNext, watching)
	return next, last.Sub(injected), err
}

// awaitAnnounced waits until this number of agents have announced the same coordinator, one that is wanted.
func awaitAnnounced(
	ctx context.Context, observations <-chan agentcluster.Observation, wanted func(coordinator string) bool, agents int,
) (coordinator string, at time.Time, err error) {
	announced := map[string]string{}
	for {
		select {
		case seen := <-observations:
			coordinator = seen.Leader.Coordinator
			announced[seen.Leader.Self] = coordinator
			if wanted(coordinator) && followers(announced, coordinator) == agents {
				return coordinator, seen.At, nil
			}
		case <-ctx.Done():
			return "", time.Time{}, fmt.Errorf("%d agents don't agree on a coordinator: %v: %w", agents, announced, ctx.Err())
		}
	}
}

func followers(announced map[string]string, coordinator string) (n int) {
	for _, followed := range announced {
		if followed == coordinator {
			n++
		}
	}
	return n
}

// Table prints the process status table of one agent.
func (t *Tour) Table(ctx context.Context, of string, out io.Writer) error {
	status, err := t.Agents.Status(ctx, of)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
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
