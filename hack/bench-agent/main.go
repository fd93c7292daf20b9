// Command bench-agent measures real agents on this machine. It measures how soon the survivors know the next
// coordinator after the coordinator's process was killed or paused, how long no process leads during a hand-over, and
// what an idle agent costs. Run it with `make bench-agent`. The comments of the methods kill, stop and handOver define
// the two moments between which each duration is measured.
package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

func main() { benchmark.Main(newRoot()) }

// options contains the values of the flags.
type options struct {
	agents    []int
	modes     []string
	kills     int
	handOvers int
	stops     int
	// heartbeat is the interval of heartbeats in milliseconds. The lease is five times as long.
	heartbeat int
	idle      time.Duration
	// groups are the numbers of groups in which idle agents take part.
	groups []int
	// agent is the path of a binary.
	agent string
}

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "bench-agent", Short: "Measure agents on this machine", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			report, err := measure(command.Context(), &o, command.ErrOrStderr())
			return errors.Join(err, benchmark.Print(command.OutOrStdout(), report))
		},
	}
	flags := root.Flags()
	flags.IntSliceVar(&o.agents, "agents", []int{3, 5, 20, 100}, "group sizes, up to 100")
	flags.StringSliceVar(&o.modes, "mode", []string{"Available", "Majority"}, "safety modes")
	flags.IntVar(&o.kills, "kills", 200,
		fmt.Sprintf("number of kills of the coordinator; at most %d of %d or more agents", killsOfLarge, largeGroup))
	flags.IntVar(&o.handOvers, "hand-overs", 50, "number of hand-overs of the office")
	flags.IntVar(&o.stops, "stops", 20, "number of times the coordinator is paused with SIGSTOP, and then killed")
	flags.IntVar(&o.heartbeat, "heartbeat-millis", 100,
		"the interval of heartbeats; the suspicion timeout is four times as long, the lease five times")
	flags.DurationVar(&o.idle, "idle", 30*time.Second, "duration of the measurement of idle agents; 0 skips it")
	flags.IntSliceVar(&o.groups, "groups", []int{1, 20}, "numbers of groups in which idle agents take part")
	flags.StringVar(&o.agent, "agent", "", "the agent's binary, for comparisons of versions; by default, build it")
	root.AddCommand(newPeerCommand(), newWitnessCommand())
	return root
}
