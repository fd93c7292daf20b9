// Command tour shows what Conclave does, without a cluster: an election in the simulator, and five real agents, whose
// coordinator is killed, hands over, and freezes. It fails if the wrong agent leads.
//
// A newcomer waits for the compiler, so it has the plugin's command simulate without the plugin, which links client-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/hack/internal/failover"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/simulate"
	"github.com/conclave-dev/conclave/internal/sim"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

const (
	scenario = "--processes 5 --crashed 5 --initiators 1 -o transcript"
	next     = `
Next, with your own hands:

    bin/tour simulate --help                            # six election algorithms, message by message
    bin/tour simulate --schedules 20000 --faults all    # random faults
    make test                                           # without root and without a cluster
    make demo                                           # on Kubernetes, see docs/demo.md
    less docs/install.md                                # on your cluster
`
	waitMax = 30 * time.Second // for each step
)

func main() {
	// Each of these signals ends the tour and its agents. When the reader of its output ends, it gets SIGPIPE.
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	root := &cobra.Command{Use: "tour", Args: command.NoArguments, SilenceUsage: true, SilenceErrors: true}
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		return run(cmd.Context(), filepath.Join(filepath.Dir(program), "conclave-agent"), cmd.OutOrStdout())
	}
	root.AddCommand(simulate.New(sim.Sample))
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(command.ExitFailure)
	}
}

// run shows everything. When it returns, its processes have ended, and its files are deleted.
func run(ctx context.Context, program string, out io.Writer) (err error) {
	fmt.Fprintf(out, "\n# Simulated: process 5 has crashed, and 1 notices it.\n$ bin/tour simulate %s\n", scenario)
	simulation := simulate.New(sim.Sample) //nolint:contextcheck // the command gets it from ExecuteContext
	simulation.SetArgs(strings.Fields(scenario))
	simulation.SetOut(out)
	if err := simulation.ExecuteContext(ctx); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "conclave-tour-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	// An agent that comes back doesn't take over, so the coordinator changes only when the tour takes it away.
	agents, err := agentcluster.New(ctx, agentcluster.Options{
		Binary: program, Folder: folder, Agents: 5, TLS: true,
		Group: agentcluster.Group{Preemption: agentcluster.Preemption{Policy: "Never", StableMillis: new(int32)}},
	})
	if err != nil {
		return err
	}
	if err = (&tour{agents: agents, out: out}).run(ctx, filepath.Join(folder, "a", "agent.yaml")); err != nil {
		err = fmt.Errorf("%w\n%s", err, agents.Logs(10))
	}
	err = errors.Join(err, agents.Close())
	if ctx.Err() != nil { // The agents may have got the signal, too, and have ended by themselves.
		return errors.New("interrupted: the agents have ended")
	}
	return err
}

// tour is the part with real agents.
type tour struct {
	agents      *agentcluster.Cluster
	coordinator *agentcluster.Agent
	out         io.Writer
}

func (t *tour) run(ctx context.Context, config string) error {
	fmt.Fprint(t.out, "\n# Real: five agents start on this machine. The agent e has the highest priority.\n")
	started := time.Now()
	names := t.agents.Names()
	slices.Reverse(names) // Where each start takes long, the others may elect before the last one is there.
	if err := t.agents.Start(names...); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	took := time.Since(started).Seconds()
	fmt.Fprintf(t.out, "%s leads: all are connected and ready after %.1f s.\n", t.coordinator.Name, took)
	status := exec.CommandContext(ctx, t.coordinator.Binary(), "status", "--config", config)
	status.Stdout, status.Stderr = t.out, t.out
	if err := status.Run(); err != nil {
		return err
	}
	for _, fault := range []func(context.Context, *agentcluster.Agent) error{t.kill, t.freeze, t.handOver} {
		if err := fault(ctx, t.coordinator); err != nil {
			return err
		}
	}
	_, err := io.WriteString(t.out, next)
	return err
}

func (t *tour) kill(ctx context.Context, a *agentcluster.Agent) error {
	return t.failover(ctx, "kill -9 of the agent "+a.Name, a.Kill, a.Start,
		a.Name+" is started again, and follows: in this group, a higher priority doesn't take over.\n")
}

func (t *tour) freeze(ctx context.Context, a *agentcluster.Agent) error {
	wake := func() error {
		if err := a.Continue(); err != nil {
			return err
		}
		answer, err := client.Leader(ctx, "ledger", client.At("http://"+a.API))
		if err == nil && answer.Leading {
			err = fmt.Errorf("%s answers that it still leads", a.Name)
		}
		return err
	}
	return t.failover(ctx, "kill -STOP of the agent "+a.Name+": it is silent, but its connections stay open", a.Stop, wake,
		a.Name+" continues. Its first answer is that it doesn't lead: its lease had expired before the election.\n")
}

func (t *tour) handOver(ctx context.Context, a *agentcluster.Agent) error {
	stepDown := func() (time.Time, error) {
		at := time.Now()
		_, err := t.agents.StepDown(ctx, a.Name, "")
		return at, err
	}
	nothing := func() error { return nil }
	return t.failover(ctx, a.Name+" hands over: POST /v1/groups/ledger/step-down", stepDown, nothing, "")
}

// failover takes the coordinator away. When all others follow the next one, it ends the fault.
func (t *tour) failover(
	ctx context.Context, title string, inject func() (time.Time, error), end func() error, result string,
) error {
	fmt.Fprintf(t.out, "\n# %s\n", title)
	limited, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	next, took, err := failover.Measure(limited, t.agents, t.coordinator.Name, inject)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s leads: all others knew it after %.1f ms.\n", next, float64(took.Microseconds())/1000)
	if err := end(); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if t.coordinator.Name == next { // On a machine without processor time to spare, there may be one more election.
		fmt.Fprint(t.out, result)
	}
	return nil
}

// settle returns when all agents are connected and ready, and agree on a coordinator.
func (t *tour) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	if err := t.agents.AwaitConnected(ctx); err != nil {
		return err
	}
	for _, name := range t.agents.Names() {
		if err := agentcluster.Await(ctx, func(ctx context.Context) error {
			ready, reasons, err := t.agents.Ready(ctx, name)
			if err == nil && !ready {
				err = errors.New(reasons)
			}
			return err
		}); err != nil {
			return err
		}
	}
	name, err := t.agents.AwaitCoordinator(ctx)
	if err == nil {
		t.coordinator = t.agents.Agent(name)
	}
	return err
}
