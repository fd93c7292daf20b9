// Command bench-agent measures real agents on this machine: how soon the
// survivors know the next coordinator when the coordinator's process is killed,
// hands over or is stopped, and what an idle agent costs. `make bench-agent` runs
// it; what is measured, and between which two moments, is written at each part.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	agents      []int
	modes       []string
	kills       int
	killsOfMany int
	handOvers   int
	stops       int
	tls         bool
	idle        time.Duration
	suspicions  time.Duration
	output      string
}

// many is the size from which a group counts as large: what takes minutes to be
// awaited there is done less often.
const many = 50

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "bench-agent", Short: "Measure agents on this machine", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := benchmark.CheckFormat(o.output); err != nil {
				return err
			}
			report, err := measure(command.Context(), &o, command.ErrOrStderr())
			if err != nil {
				return err
			}
			return benchmark.Write(command.OutOrStdout(), o.output, report)
		},
	}
	flags := root.Flags()
	flags.IntSliceVar(&o.agents, "agents", []int{3, 5, 20, 100}, "sizes of the groups")
	flags.StringSliceVar(&o.modes, "mode", []string{"Available", "Majority"}, "safety modes")
	flags.IntVar(&o.kills, "kills", 200, "how often the coordinator is killed")
	flags.IntVar(&o.killsOfMany, "kills-of-many", 30, fmt.Sprintf("the same in groups of %d and more", many))
	flags.IntVar(&o.handOvers, "hand-overs", 50, "how often it hands its office over")
	flags.IntVar(&o.stops, "stops", 20, "how often it is stopped")
	flags.BoolVar(&o.tls, "tls", true, "agents speak TLS")
	flags.DurationVar(&o.idle, "idle", 30*time.Second, "how long idle agents are looked at; 0: not at all")
	flags.DurationVar(&o.suspicions, "false-suspicions", 0, "instead of all that, count for so long how often agents are suspected while all cores are busy")
	flags.StringVarP(&o.output, "output", "o", "table", "table or json")
	root.AddCommand(newPeerCommand(), newWitnessCommand(), newBusyCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}
