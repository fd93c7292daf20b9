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

// Fault takes the coordinator away.
type Fault struct {
	Name    string
	inject  func(ctx context.Context, agents *agentcluster.Cluster, coordinator string) (time.Time, error)
	recover func(agents *agentcluster.Cluster, coordinator string) error
}

// Faults are a crash, a pause, and a hand-over.
var Faults = []Fault{
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

// Failover takes the coordinator away, on which all agents agree. It returns the next one, and the time until all other agents
// followed it. Then it ends the fault.
func (t *Tour) Failover(ctx context.Context, coordinator string, f Fault) (next string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	next, took, err = Failover(ctx, t.Agents, coordinator, func() (time.Time, error) { return f.inject(ctx, t.Agents, coordinator) })
	return next, took, errors.Join(err, f.recover(t.Agents, coordinator))
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
