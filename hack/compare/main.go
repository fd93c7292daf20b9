// Command compare measures Conclave beside other ways to elect a leader, all in one run on one machine. Run it with
// `make compare`. It starts the candidates of each system as processes, takes the leader away, and notes when all
// survivors know the next one, as they report it themselves. Each system is an elector: see elector.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	benchmark.Main(newRoot())
}

// options contains the values of the flags.
type options struct {
	rounds int
	idle   time.Duration
	only   []string
	agent  string
	output string
	report string
}

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "compare", Short: "Measure Conclave beside other ways to elect a leader", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.report == operatorsReport {
				if err := buildOperators(command.Context(), o.operators(), command.ErrOrStderr()); err != nil {
					return err
				}
			}
			return rerun(command.Context())
		},
	}
	inside := &cobra.Command{
		Use: insideCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if o.output == "" {
				o.output = filepath.Join("docs", "results", o.report)
			}
			if err := agentcluster.SetUpNetwork(command.Context()); err != nil {
				return err
			}
			if o.report == operatorsReport {
				return reconciling(command.Context(), &o, command.ErrOrStderr())
			}
			return run(command.Context(), &o, command.ErrOrStderr())
		},
	}
	flags := root.PersistentFlags()
	flags.IntVar(&o.rounds, "rounds", 20, "how often each fault hits each system")
	flags.DurationVar(&o.idle, "idle", 10*time.Second, "how long to measure idle candidates")
	flags.StringSliceVar(&o.only,
		"only", nil, "measure only these systems: "+strings.Join(allNames(), ", ")+"; or of the report's operators")
	flags.StringVar(&o.agent, "agent", "bin/conclave-agent", "the program of Conclave's agent")
	flags.StringVar(&o.report, "report", compareReport, "what to measure: "+strings.Join(reports, ", "))
	flags.StringVar(&o.output, "output", "",
		"write this file with the extensions .md and .json (default docs/results/ and the report's name)")
	root.AddCommand(inside, newCandidateCommand(), newReplicaCommand(), &cobra.Command{
		Use:   "draw",
		Short: "Write the reports in docs/results and the README's picture again, from their JSON files", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return draw(filepath.Join("docs", "results")) },
	})
	return root
}

const insideCommand = "inside"

// The reports: systems beside each other, and how operators that people know do.
const (
	compareReport   = "compare"
	operatorsReport = "operators"
)

var reports = []string{compareReport, operatorsReport}

// rerun runs this program in a network namespace of its own: there all ports are free, and no other traffic is counted.
func rerun(ctx context.Context) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, executable, append([]string{insideCommand}, os.Args[1:]...)...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	agentcluster.InOwnNetwork(command)
	if err := command.Run(); err != nil {
		if _, failed := errors.AsType[*exec.ExitError](err); failed {
			os.Exit(1) // It has said why.
		}
		return fmt.Errorf("cannot create a network namespace: %w", err)
	}
	return nil
}

func (o *options) check() error {
	if !slices.Contains(reports, o.report) {
		return fmt.Errorf("--report must be one of %s, got %q", strings.Join(reports, ", "), o.report)
	}
	if o.report == operatorsReport && len(o.operators()) < len(o.only) {
		return fmt.Errorf("--only must be operators of the report, such as keda, got %q", o.only)
	}
	if _, err := o.selected(); err != nil && o.report == compareReport {
		return err
	}
	if o.rounds < 1 || o.idle <= 0 {
		return fmt.Errorf("--rounds and --idle must be above 0, got %d and %s", o.rounds, o.idle)
	}
	return nil
}

func (o *options) selected() ([]system, error) {
	if len(o.only) == 0 {
		return systems, nil
	}
	var chosen []system
	for _, name := range o.only {
		s, err := systemNamed(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}
